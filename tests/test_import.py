"""import online_softmax: quick, light, and complete."""

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import online_softmax as osm


def fresh(program):
    """The output of a program in a new interpreter that imports what this one would."""
    paths = f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}\n"
    done = subprocess.run([sys.executable, "-c", paths + program], capture_output=True, text=True, check=True)
    return done.stdout


def test_no_optional_package_is_imported():
    program = "import online_softmax; print(*(name.partition('.')[0] for name in sys.modules))"
    loaded = set(fresh(program).split())
    assert not loaded & {"torch", "scipy", "cuda", "rich", "altair", "marimo", "numba", "jax", "cupy"}


def test_numpy_arrays_are_computed_without_torch():
    program = """
import numpy as np, online_softmax as osm
x = np.zeros((2, 3))
osm.softmax(x), osm.logsumexp(x, b=x), osm.cross_entropy_with_grad(x, np.array([0, 1]), return_aux=True)
osm.merge(osm.State.of(x), osm.State.empty(2, x)).logsumexp()
import online_softmax.special
print('torch' in sys.modules)
"""
    assert fresh(program).strip() == "False"


def test_it_takes_less_than_a_fifth_of_a_second_beyond_numpy():
    # Processor time, the best of several: what else the machine is doing must not count.
    program = """
import time, numpy
start = time.process_time()
import online_softmax
print(time.process_time() - start)
"""
    assert min(float(fresh(program)) for _ in range(4)) < 0.2


def test_all_lists_the_public_names_and_only_those():
    assert sorted(osm.__all__) == osm.__all__
    public = {
        name
        for name, thing in vars(osm).items()
        if not name.startswith("_") and getattr(thing, "__module__", "").startswith("online_softmax")
    }
    lazy = {name for name in osm.__all__ if name not in vars(osm)}
    assert public | lazy == set(osm.__all__)
    for name in osm.__all__:
        assert getattr(osm, name).__doc__


NOT_COMPUTING = ("merge", "check_targets", "set_kept_memory", "set_num_threads", "warm_up")


def test_every_public_function_is_typed_and_takes_impl_where_it_computes():
    for name in osm.__all__:
        function = getattr(osm, name)
        if not inspect.isfunction(function):
            continue
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, name
        assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values()), name
        if name not in NOT_COMPUTING and "impl" not in signature.parameters:
            raise AssertionError(f"{name} has no impl=")


def modules_with_examples():
    optional = ("cli", "commands", "workshop", "bench", "demo", "_native", "__main__")
    for found in pkgutil.walk_packages(osm.__path__, "online_softmax."):
        if not any(part in optional for part in found.name.split(".")):
            yield found.name


@pytest.mark.parametrize("name", ["online_softmax", *modules_with_examples()])
def test_the_examples_in_docstrings_are_true(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} needs what is not here: {error}")
    failed, _ = doctest.testmod(module, verbose=False)
    assert failed == 0


def test_there_are_examples_for_every_function_of_the_core():
    for name in ("softmax", "log_softmax", "logsumexp", "cross_entropy", "cross_entropy_with_grad", "State"):
        assert ">>>" in getattr(osm, name).__doc__
