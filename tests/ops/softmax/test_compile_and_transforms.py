"""softmax and its family under torch.compile, opcheck, autocast, fake and subclass tensors, and torch.func."""

import pytest
import torch
from tests.arrays import random
from tests.ops.softmax.common import FUNCTIONS, NAMES
from tests.tolerances import close
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import online_softmax as osm
import online_softmax.nn


def tensor(shape=(4, 6), **options):
    return torch.tensor(random(shape), dtype=torch.float32, **options)


class Tagged(torch.Tensor):
    """A tensor subclass, as libraries define them."""


CALLS = {
    "softmax": lambda x: osm.softmax(x),
    "log_softmax over two axes": lambda x: osm.log_softmax(x, (0, 1)),
    "logsumexp": lambda x: osm.logsumexp(x, 1, keepdims=True),
    "logsumexp of everything": lambda x: osm.logsumexp(x),
    "softmax with where": lambda x: osm.softmax(x, where=x.detach() > 0),
    "softmax in float64": lambda x: osm.softmax(x, 0, dtype=torch.float64),
    "logsumexp with factors": lambda x: osm.logsumexp(x, 1, b=x.detach().abs()),
}


@pytest.mark.parametrize("call", CALLS)
def test_traces_into_one_graph_with_values_and_gradients_of_eager_mode(call):
    torch._dynamo.reset()
    fn = CALLS[call]
    compiled = torch.compile(fn, fullgraph=True, backend="aot_eager")
    x, y = tensor(requires_grad=True), tensor(requires_grad=True)
    got, want = compiled(x), fn(y)
    close(got, want, 4, atol=1e-7)
    got.square().sum().backward()
    want.square().sum().backward()
    close(x.grad, y.grad, 16, atol=1e-6)


def test_dynamic_shapes_compile_once():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x: osm.log_softmax(x), fullgraph=True, backend=counter, dynamic=True)
    for rows, width in ((3, 5), (4, 7), (8, 6)):
        x = tensor((rows, width))
        close(compiled(x), osm.log_softmax(x), 4)
    assert counter.frame_count == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_the_operator_passes_torchs_own_checks(name, dtype):
    x = tensor().to(dtype).requires_grad_()
    arguments = (x, name, 1, torch.float32, "auto")
    torch.library.opcheck(torch.ops.online_softmax.rows.default, arguments)
    y = torch.ops.online_softmax.rows(x.detach(), name, 0, torch.float32, "auto")
    saved = x.detach() if name == "logsumexp" else y
    arguments = (torch.ones_like(y), saved, y, name, 0, dtype, "auto")
    torch.library.opcheck(torch.ops.online_softmax.rows_backward.default, arguments)


@pytest.mark.parametrize("name", NAMES)
def test_a_subclass_reaches_the_operator_with_the_same_value_and_gradient(name):
    plain = tensor(requires_grad=True)
    special = plain.detach().clone().as_subclass(Tagged).requires_grad_()
    got, want = FUNCTIONS[name](special, 1), FUNCTIONS[name](plain, 1)
    close(got.as_subclass(torch.Tensor), want, 0)
    got.sum().backward()
    want.sum().backward()
    close(special.grad.as_subclass(torch.Tensor), plain.grad, 4, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_a_second_derivative_through_the_operator_is_refused_not_cut_off(name):
    x = tensor().as_subclass(Tagged).requires_grad_()
    (g,) = torch.autograd.grad(FUNCTIONS[name](x, 1).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative here"):
        torch.autograd.grad(g.sum(), x)


@pytest.mark.parametrize("name", NAMES)
def test_fake_and_meta_tensors_give_shape_and_dtype(name):
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(tensor().half())
        y = FUNCTIONS[name](fake, 1)
    assert y.dtype == torch.float16
    assert y.shape == ((4,) if name == "logsumexp" else (4, 6))
    meta = FUNCTIONS[name](torch.empty(4, 6, device="meta"), 0)
    assert meta.device.type == "meta"
    assert meta.shape == ((6,) if name == "logsumexp" else (4, 6))


@pytest.mark.parametrize("name", NAMES)
def test_vmap_and_grad_transforms_get_a_clear_error(name):
    x = tensor()
    for transform in (torch.func.vmap, lambda fn: torch.func.grad(lambda x: fn(x).sum()), torch.func.jacrev):
        with pytest.raises(NotImplementedError, match=r"torch\.func"):
            transform(FUNCTIONS[name])(x)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # of make_dual itself
def test_forward_mode_is_refused_not_dropped(name):
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        FUNCTIONS[name](forward_ad.make_dual(tensor(), torch.ones(4, 6)))
    FUNCTIONS[name](tensor())


@pytest.mark.parametrize("name", NAMES)
def test_autocast_on_the_cpu_keeps_the_inputs_dtype(name):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for dtype in (torch.float32, torch.bfloat16):
            assert FUNCTIONS[name](tensor().to(dtype)).dtype == dtype


def test_parameters_are_ordinary_tensors():
    parameter = torch.nn.Parameter(tensor())
    osm.softmax(parameter)[:, 0].sum().backward()
    assert parameter.grad is not None


def test_deepcopied_and_pickled_modules_still_run():
    import copy
    import pickle

    module = online_softmax.nn.Softmax(-1)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        close(twin(tensor()), module(tensor()), 0)
