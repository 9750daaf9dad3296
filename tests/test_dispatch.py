"""Which implementation runs: every branch of the table is reached, and proved by what ran."""

import sys
import types

import array_api_strict
import numpy as np
import pytest
import torch

import online_softmax as osm
from online_softmax import _dispatch

OPERATIONS = ("softmax", "cross_entropy")
RAN = []


def stand_in(operation, name):
    """A module that records that it ran, and answers with the reference."""
    reference = _dispatch._load(operation, "reference")
    module = types.ModuleType(f"stand-in {name}")

    def wrap(function):
        def recorded(*args, **kwargs):
            RAN.append((operation, name))
            return function(*args, **kwargs)

        return recorded

    for key, function in vars(reference).items():
        if callable(function) and not key.startswith("_"):
            setattr(module, key, wrap(function))
    return module


@pytest.fixture
def table(monkeypatch):
    """The dispatch with stand-ins for all implementations; set `table.missing[impl]` to say why one cannot run."""
    missing = {"cpu": None, "cuda": None}
    modules = {(op, name): stand_in(op, name) for op in OPERATIONS for name in ("reference", "cpu", "cuda")}
    monkeypatch.setattr(_dispatch, "_load", lambda operation, name: modules[operation, name])
    monkeypatch.setattr(_dispatch, "_missing", lambda impl: missing[impl])
    clear()
    RAN.clear()
    yield types.SimpleNamespace(missing=missing)
    clear()


def clear():
    """Forget what was picked before: the choice is made once for each kind of call."""
    for cached in (_dispatch._pick, getattr(_dispatch, "implementation", None)):
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


X = {
    "numpy": np.zeros((2, 3)),
    "torch": torch.zeros(2, 3),
    "other": array_api_strict.zeros((2, 3)),
}
T = {"numpy": np.zeros(2, int), "torch": torch.zeros(2, dtype=torch.int64), "other": array_api_strict.asarray([0, 0])}


def ran(array, impl="auto"):
    """The implementation that softmax and cross_entropy of an array ran on; both must agree."""
    RAN.clear()
    osm.softmax(X[array], impl=impl)
    osm.cross_entropy(X[array], T[array], impl=impl)
    assert [operation for operation, _ in RAN] == list(OPERATIONS)
    (name,) = {name for _, name in RAN}
    return name


def test_arrays_on_the_cpu_take_the_native_kernels_and_others_the_reference(table):
    assert ran("numpy") == ran("torch") == "cpu"
    assert ran("other") == "reference"


def test_without_native_kernels_auto_takes_the_reference_quietly(table):
    table.missing["cpu"] = "not built"
    assert ran("numpy") == ran("torch") == ran("other") == "reference"


def test_the_reference_can_always_be_named(table):
    assert [ran(array, "reference") for array in X] == ["reference"] * 3


def test_named_kernels_run_or_raise_with_what_is_missing_and_never_fall_back(table):
    assert ran("numpy", "cpu") == ran("torch", "cpu") == "cpu"
    clear()
    table.missing["cpu"] = "no compiler was found"
    for array in ("numpy", "torch"):
        for call in (lambda a: osm.softmax(X[a], impl="cpu"), lambda a: osm.cross_entropy(X[a], T[a], impl="cpu")):
            RAN.clear()
            with pytest.raises(RuntimeError, match=r"impl is 'cpu'.*no compiler was found"):
                call(array)
            assert RAN == []


@pytest.mark.parametrize(("array", "impl"), [("other", "cpu"), ("numpy", "cuda"), ("torch", "cuda"), ("other", "cuda")])
def test_kernels_for_other_arrays_are_refused_saying_what_they_take(array, impl, table):
    with pytest.raises(ValueError, match=f"impl is '{impl}', which takes"):
        osm.softmax(X[array], impl=impl)
    with pytest.raises(ValueError, match=f"impl is '{impl}', which takes"):
        osm.cross_entropy(X[array], T[array], impl=impl)
    assert RAN == []


def test_cuda_asked_for_on_the_cpu_says_what_to_move_or_what_is_missing(table):
    with pytest.raises(
        ValueError, match=r"CUDA device; got a torch tensor on cpu \(move it there with \.to\('cuda'\)\)"
    ):
        osm.softmax(X["torch"], impl="cuda")
    clear()
    table.missing["cuda"] = "PyTorch sees no CUDA device"
    for array, came in (("torch", "a torch tensor on cpu"), ("numpy", "a NumPy array"), ("other", "another library's")):
        with pytest.raises(ValueError, match=f"got {came}.*nor could it run here: PyTorch sees no CUDA device"):
            osm.softmax(X[array], impl="cuda")


@pytest.mark.parametrize(
    ("version", "device", "text"), [(None, False, "built without CUDA"), ("13.0", False, "no CUDA")]
)
def test_what_cuda_needs_is_said(version, device, text, monkeypatch):
    from online_softmax import _cuda

    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device)
    assert text in _cuda.availability()


def test_an_unknown_name_is_refused_before_anything_runs(table):
    with pytest.raises(ValueError, match=r"impl is 'gpu'; wanted one of 'auto', 'reference', 'cpu', 'cuda'"):
        osm.softmax(X["numpy"], impl="gpu")
    assert RAN == []


def test_cuda_tensors_take_the_cuda_kernels(table):
    pick = _dispatch._pick
    for impl in ("auto", "cuda"):
        assert pick("softmax", "torch", "cuda", impl).__name__ == "stand-in cuda"
    assert pick("softmax", "torch", "cuda", "reference").__name__ == "stand-in reference"
    with pytest.raises(ValueError, match=r"'cpu'.*torch tensor on cuda"):
        pick("softmax", "torch", "cuda", "cpu")


def test_cuda_tensors_without_kernels_warn_once_and_take_the_reference(table):
    table.missing["cuda"] = "cuda-core is not installed"
    with pytest.warns(RuntimeWarning, match=r"slow reference.*cuda-core is not installed"):
        first = _dispatch._pick("softmax", "torch", "cuda", "auto")
    # Warnings are errors here: a second one would fail.
    assert _dispatch._pick("softmax", "torch", "cuda", "auto") is first
    assert first.__name__ == "stand-in reference"
    with pytest.raises(RuntimeError, match=r"impl is 'cuda'.*cuda-core is not installed"):
        _dispatch._pick("softmax", "torch", "cuda", "cuda")


def test_tensors_on_other_devices_take_the_reference(table):
    for device in ("mps", "xpu", "meta"):
        assert _dispatch._pick("softmax", "torch", device, "auto").__name__ == "stand-in reference"
        with pytest.raises(ValueError, match=f"torch tensor on {device}"):
            _dispatch._pick("softmax", "torch", device, "cuda")


def test_backward_runs_on_the_implementation_of_forward(table):
    for impl in ("reference", "cpu", "auto"):
        want = "cpu" if impl == "auto" else impl
        x = torch.zeros(2, 3, requires_grad=True)
        RAN.clear()
        for fn in (osm.softmax, osm.log_softmax, osm.logsumexp):
            fn(x, -1, impl=impl).sum().backward()
        osm.cross_entropy(x, T["torch"], reduction="none", impl=impl).sum().backward()
        osm.cross_entropy(x, T["torch"], impl=impl).backward()
        assert {name for _, name in RAN} == {want}


def test_an_installation_without_kernels_says_what_is_missing(monkeypatch):
    _dispatch._missing.cache_clear()
    monkeypatch.setitem(sys.modules, "online_softmax._cpu", None)
    monkeypatch.setitem(sys.modules, "online_softmax._cuda", None)
    try:
        found = {line.impl: line for line in _dispatch.availability()}
    finally:
        _dispatch._missing.cache_clear()
    assert list(found) == ["reference", "cpu", "cuda"]
    assert found["reference"].available
    for impl in ("cpu", "cuda"):
        assert not found[impl].available
        assert "kernels" in found[impl].detail


def test_what_is_available_here_is_listed_in_a_line_each():
    for line in _dispatch.availability():
        assert isinstance(line.available, bool)
        assert line.detail
        assert "\n" not in line.detail
