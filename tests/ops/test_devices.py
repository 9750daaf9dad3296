"""Where results are, and of what kind: as the arguments, wherever torch would put new tensors, with data or without."""

import ast
import inspect
from pathlib import Path

import pytest
import torch
from tests.ops import calls
from tests.ops.calls import CALLS, Tensors, process_group_of_one, run, tensors
from torch._subclasses.fake_tensor import FakeTensorMode

import online_softmax as osm
import online_softmax.nn

PACKAGE = Path(osm.__file__).parent
# Programs make tensors of their own, and these wherever torch is told to; so do the rungs of the ladder.
PROGRAMS = ("bench", "demo", "ladder", "workshop")
MAKERS = {"arange", "as_tensor", "asarray", "empty", "empty_strided", "eye", "full", "linspace", "ones"}
MAKERS |= {"rand", "randint", "randn", "scalar_tensor", "tensor", "zeros"}


def test_every_function_of_tensors_is_called():
    of_tensors = {name for name in osm.__all__ if inspect.isfunction(getattr(osm, name))}
    of_tensors -= {"check_targets", "set_kept_memory", "set_num_threads", "warm_up"}
    source = inspect.getsource(calls)
    assert not {name for name in of_tensors if f"osm.{name}(" not in source}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("grad", [False, True])
def test_results_and_gradients_are_where_the_arguments_are(call, grad, impl):
    a = tensors()
    with torch.device("meta"), torch.set_grad_enabled(grad):
        results = run(call, a, impl)
        results += a.gradients(results)
    assert {x.device.type for x in results} == {"cpu"}


@pytest.mark.parametrize("call", ["softmax", "logsumexp", "cross_entropy", "merge_attention"])
def test_second_derivatives_are_too(call):
    a = tensors()
    with torch.device("meta"):
        leaf = a.q if call == "merge_attention" else a.x
        (first,) = torch.autograd.grad(run(call, a)[0].square().sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), leaf)
    assert first.device.type == second.device.type == "cpu"


def test_checks_of_targets_run_where_the_targets_are():
    a = tensors()
    with torch.device("meta"), pytest.raises(IndexError, match="is 9"):
        osm.check_targets(a.x, a.t * 0 + 9)


def test_distributed_functions_too():
    from online_softmax import distributed as od

    a = tensors()
    with process_group_of_one(), torch.device("meta"):
        results = [
            od.softmax(a.x),
            od.logsumexp(a.x),
            od.cross_entropy(a.x, a.t, z_loss=0.1, label_smoothing=0.1),
            od.linear_cross_entropy(a.q[0], a.w, a.t),
            od.ring_attention(*[a.q[:, None]] * 3, causal=True, lengths=[3]),
            od.all_merge(osm.State.of(a.x)).m,
            od.shard_sequence(a.q, 1, lengths=[3]),
            od.gather_sequence(a.q, lengths=[3], axis=1),
        ]
        results += a.gradients(results)
    assert {x.device.type for x in results} == {"cpu"}


@pytest.mark.parametrize("call", [name for name in CALLS if name != "cross_entropy in place"])
@pytest.mark.parametrize("autocast", [False, True])
def test_tensors_without_data_give_shapes_and_dtypes(call, autocast):
    a = tensors()
    b = a.to("meta")
    with torch.autocast("cpu", enabled=autocast):
        got = run(call, b)
        got += b.gradients(got)
        want = run(call, a)
        want += a.gradients(want)
    assert {x.device.type for x in got} == {"meta"}
    assert [x.shape for x in got] == [x.shape for x in want]
    if not autocast:  # which torch has for devices, and not for none
        assert [x.dtype for x in got] == [x.dtype for x in want]


class Tagged(torch.Tensor):
    """A tensor subclass, as libraries define them."""


@pytest.mark.parametrize("call", [name for name in CALLS if name != "cross_entropy in place"])
def test_fake_and_subclass_tensors_give_what_plain_ones_do(call):
    a = tensors()
    want = run(call, a)
    want += a.gradients(want)
    with FakeTensorMode() as mode:
        b = Tensors(*map(mode.from_tensor, a))
        fake = run(call, b)
        fake += b.gradients(fake)
    assert [(x.shape, x.dtype) for x in fake] == [(x.shape, x.dtype) for x in want]
    c = Tensors(*(x.detach().as_subclass(Tagged).requires_grad_(x.requires_grad) for x in a))
    got = run(call, c)
    got += c.gradients(got)
    torch.testing.assert_close([x.as_subclass(torch.Tensor) for x in got], want, equal_nan=True)


def test_modules_take_a_dtype_by_name_whatever_the_device():
    with torch.device("meta"):
        loss = online_softmax.nn.LinearCrossEntropyLoss(4, 5, device="cpu", dtype="float64")
    assert loss.linear.weight.dtype == torch.float64


def test_every_array_that_the_library_makes_names_its_device():
    """GPU code too, which the calls above do not reach."""
    unnamed = []
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] in PROGRAMS:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MAKERS:
                of_a_library = ast.unparse(node.func.value).rsplit(".", 1)[-1] in ("torch", "xp")
                # Keywords that are spelled elsewhere, **where, have no name here.
                if of_a_library and not {"device", None} & {keyword.arg for keyword in node.keywords}:
                    unnamed.append(f"{file.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}")
    assert not unnamed
