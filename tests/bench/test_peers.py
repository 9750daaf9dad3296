"""How other libraries are asked: by functions that stand in for those installed with a GPU."""

import sys
import types

import pytest
import torch

from online_softmax.bench import case as cases
from online_softmax.bench import peers
from online_softmax.bench.workload import Workload

ON_CUDA = types.SimpleNamespace(device=types.SimpleNamespace(type="cuda"), dtype=torch.bfloat16)


@pytest.fixture
def asked(monkeypatch):
    """What quack and Liger were called with."""
    calls = []

    def stand_in(library):
        return lambda *arguments, **options: calls.append((library, options))

    for module, name in (
        ("quack.softmax", "softmax"),
        ("quack.cross_entropy", "cross_entropy"),
        ("liger_kernel.transformers.functional", "liger_softmax"),
        ("liger_kernel.transformers.functional", "liger_cross_entropy"),
    ):
        made = sys.modules.get(module)
        if not isinstance(made, types.ModuleType) or getattr(made, "__file__", None):
            made = types.ModuleType(module)
            monkeypatch.setitem(sys.modules, module, made)
        setattr(made, name, stand_in(module.partition(".")[0]))
        package = module.partition(".")[0]
        # As quack does it: the package's attribute of the module's name is the function.
        root = types.ModuleType(package)
        root.__path__ = []
        setattr(root, name, getattr(made, name))
        monkeypatch.setitem(sys.modules, package, root)
    peers._load.cache_clear()
    yield calls
    peers._load.cache_clear()


def losses(variant):
    case = cases.make(Workload("cross_entropy", 4, 8, "bfloat16", variant), "cpu")
    return peers.losses(case._replace(x=ON_CUDA))


@pytest.mark.parametrize(
    ("variant", "reduction", "inplace"), [("", "mean", False), ("none", "none", False), ("inplace", "mean", True)]
)
def test_quack_and_liger_are_asked_for_the_workload_s_loss(asked, variant, reduction, inplace):
    functions = losses(variant)
    functions["quack"](1, 2)
    functions["Liger"](1, 2)
    assert asked == [
        ("quack", {"reduction": reduction, "inplace_backward": inplace}),
        ("liger_kernel", {"reduction": reduction}),
    ]


def test_liger_alone_has_all_options(asked):
    functions = losses("all options")
    assert "quack" not in functions
    functions["Liger"](1, 2)
    ((_, options),) = asked
    assert options == {"label_smoothing": cases.SMOOTHING, "softcap": cases.SOFTCAP, "lse_square_scale": cases.Z_LOSS}


def test_they_take_softmax_along_the_last_axis_on_the_gpu_and_nothing_else(asked):
    assert {"quack", "Liger"} <= set(peers.on_tensors("softmax", -1, "cuda"))
    for operation, axis, device in (("softmax", 0, "cuda"), ("softmax", -1, "cpu"), ("log_softmax", -1, "cuda")):
        assert not {"quack", "Liger"} & set(peers.on_tensors(operation, axis, device))
    assert not {"quack", "Liger"} & set(peers.losses(cases.make(Workload("cross_entropy", 4, 8), "cpu")))


def test_a_library_that_is_there_but_does_not_load_is_said_once(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "quack", types.ModuleType("quack"))
    monkeypatch.setitem(sys.modules, "quack.cross_entropy", None)
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    peers._load.cache_clear()
    for _ in range(2):
        assert "quack" not in losses("")
    told = capsys.readouterr().err
    assert told.count("quack.cross_entropy.cross_entropy takes no part, it does not load") == 1
    peers._load.cache_clear()
