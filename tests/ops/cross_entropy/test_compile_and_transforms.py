"""cross_entropy under torch.compile, opcheck, autocast, fake and subclass tensors, and torch.func."""

import pytest
import torch
from tests.ops.cross_entropy.common import indices, logits, probabilities
from tests.tolerances import close
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import online_softmax as osm
import online_softmax.nn

W = torch.tensor([0.5, 1.0, 2.0, 0.25, 3.0])
P = probabilities(dtype="float32")


class Tagged(torch.Tensor):
    """A tensor subclass, as libraries define them."""


def f32(grad=True):
    return logits(dtype="float32", grad=grad)


CALLS = {
    "mean": lambda x: osm.cross_entropy(x, indices(ignored=(1,))),
    "mean with weights and smoothing": lambda x: osm.cross_entropy(x, indices(), W, label_smoothing=0.1),
    "none": lambda x: osm.cross_entropy(x, indices(), reduction="none"),
    "sum of probabilities": lambda x: osm.cross_entropy(x, P, reduction="sum"),
    "scale, softcap and z": lambda x: osm.cross_entropy(x, indices(), scale=0.5, softcap=3.0, z_loss=0.1),
    "a number of items": lambda x: osm.cross_entropy(x, indices(), num_items=9),
    "a tensor of items": lambda x: osm.cross_entropy(x, indices(), num_items=torch.tensor(9.0)),
    "spatial": lambda x: osm.cross_entropy(x.reshape(2, 3, 5).transpose(1, 2), indices().reshape(2, 3)),
    "half precision": lambda x: osm.cross_entropy(x.half(), indices()),
    "with aux": lambda x: (lambda loss, aux: loss + aux.lse.mean() + aux.entropy.sum())(
        *osm.cross_entropy(x, indices(), z_loss=0.1, return_aux=True)
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_traces_into_one_graph_with_values_and_gradients_of_eager_mode(call):
    torch._dynamo.reset()
    compiled = torch.compile(CALLS[call], fullgraph=True, backend="aot_eager")
    x, y = f32(), f32()
    got, want = compiled(x), CALLS[call](y)
    close(got, want, 8, atol=1e-6)
    (got.sum() * 3).backward()
    (want.sum() * 3).backward()
    close(x.grad, y.grad, 64, atol=2e-3 if call == "half precision" else 1e-6)


def test_batches_of_any_size_share_one_compilation():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(osm.cross_entropy, fullgraph=True, backend=counter, dynamic=True)
    counts = []
    for rows in (3, 6, 8, 11):
        x, t = logits(rows, dtype="float32"), indices(rows)
        close(compiled(x, t), osm.cross_entropy(x, t), 4)
        counts.append(counter.frame_count)
    assert counts[-1] == counts[0]


def test_a_compiled_call_still_checks_its_targets():
    torch._dynamo.reset()
    compiled = torch.compile(osm.cross_entropy, fullgraph=True, backend="aot_eager")
    with pytest.raises((IndexError, RuntimeError), match="is 9"):
        compiled(f32(), indices() + 9 * (indices() == 0))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("aux", [False, True])
def test_the_operators_pass_torchs_own_checks(reduction, aux):
    early = reduction == "mean"
    options = (-100, reduction, 0.1, 0.5, 3.0, 0.1)
    for x in (f32(), logits(dtype="bfloat16", grad=True)):
        arguments = (x, indices(ignored=(1,)), W, None, None, *options, aux, early, "auto")
        # Autograd hands a fresh buffer for the gradient; the checks of the registration itself all run.
        torch.library.opcheck(torch.ops.online_softmax.cross_entropy.default, arguments)
        loss, lse, low, divisors, *_ = torch.ops.online_softmax.cross_entropy(x.detach(), *arguments[1:])
        given = (x.detach(), indices(ignored=(1,)), W, lse, low, divisors, torch.ones_like(loss), torch.ones_like(lse))
        torch.library.opcheck(torch.ops.online_softmax.cross_entropy_backward.default, (*given, *options, "auto"))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_subclass_reaches_the_operator_with_the_same_value_and_gradient(reduction):
    plain = f32()
    special = plain.detach().clone().as_subclass(Tagged).requires_grad_()
    how = {"reduction": reduction, "label_smoothing": 0.1, "z_loss": 0.1}
    got, want = osm.cross_entropy(special, indices(), **how), osm.cross_entropy(plain, indices(), **how)
    close(got.as_subclass(torch.Tensor), want, 0)
    (got * 2).sum().backward()
    (want * 2).sum().backward()
    close(special.grad.as_subclass(torch.Tensor), plain.grad, 16, atol=1e-7)


def test_probability_targets_of_a_subclass_get_their_gradient():
    p, q = probabilities().requires_grad_(), probabilities().as_subclass(Tagged).requires_grad_()
    osm.cross_entropy(logits(), p).backward()
    osm.cross_entropy(logits(), q).backward()
    close(q.grad.as_subclass(torch.Tensor), p.grad, 4)


def test_a_second_derivative_through_the_operator_is_refused_not_cut_off():
    for reduction in ("none", "mean"):
        x = f32().detach().as_subclass(Tagged).requires_grad_()
        loss = osm.cross_entropy(x, indices(), reduction=reduction).sum()
        (g,) = torch.autograd.grad(loss, x, create_graph=True)
        with pytest.raises(RuntimeError, match="no second derivative here"):
            g.square().sum().backward()


def test_what_aux_adds_is_detached_in_compiled_calls_too():
    x = f32().detach().as_subclass(Tagged).requires_grad_()
    _, aux = osm.cross_entropy(x, indices(), z_loss=0.1, return_aux=True)
    assert aux.lse.requires_grad
    assert not any(part.requires_grad for part in (aux.z_loss, aux.predicted, aux.entropy))


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_fake_and_meta_tensors_give_shape_and_dtype(reduction):
    with FakeTensorMode() as mode:
        x, t = mode.from_tensor(logits(dtype="bfloat16")), mode.from_tensor(indices())
        loss, aux = osm.cross_entropy(x, t, reduction=reduction, return_aux=True)
    assert loss.dtype == torch.float32
    assert loss.shape == ((6,) if reduction == "none" else ())
    assert aux.predicted.dtype == torch.int64
    assert aux.entropy.shape == (6,)
    meta = osm.cross_entropy(torch.empty(6, 5, device="meta"), torch.empty(6, dtype=torch.int64, device="meta"))
    assert meta.device.type == "meta"
    assert meta.shape == ()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # of make_dual itself
def test_forward_mode_is_refused_not_dropped():
    for fn in (osm.cross_entropy, osm.cross_entropy_with_grad):
        with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
            fn(forward_ad.make_dual(logits(), torch.ones_like(logits())), indices())


def test_vmap_and_grad_transforms_get_a_clear_error():
    x, t = f32(grad=False), indices()
    for transform in (
        lambda fn: torch.func.vmap(fn)(x, t),
        lambda fn: torch.func.grad(fn)(x, t),
        lambda fn: torch.func.jacrev(fn)(x, t),
    ):
        with pytest.raises(NotImplementedError, match=r"torch\.func"):
            transform(osm.cross_entropy)


def test_autocast_on_the_cpu_gives_float32_losses():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for dtype in ("float32", "bfloat16"):
            x = logits(dtype=dtype, grad=True)
            loss = osm.cross_entropy(x, indices())
            assert loss.dtype == torch.float32
            loss.backward()
            assert x.grad.dtype == x.dtype
