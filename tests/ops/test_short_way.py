"""Ordinary tensors with default arguments pass all checks at once: what they get is what the long way gives."""

import re

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad

import online_softmax as osm
from online_softmax.ops import _torch
from online_softmax.ops.cross_entropy import arguments, torch_op
from online_softmax.ops.cross_entropy.options import Options
from online_softmax.ops.softmax import torch_op as softmax_op

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Subclass(torch.Tensor):
    pass


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


@pytest.fixture
def long_way(monkeypatch):
    """What a call gives, or raises, when nothing takes the short way; and that it would have taken it."""

    def run(call):
        asked = []
        with monkeypatch.context() as patch:
            for module in (torch_op, softmax_op):
                patch.setattr(module, "is_ordinary", lambda x: asked.append(x) and False)
            try:
                return call()
            finally:
                assert asked

    return run


def test_what_is_ordinary():
    x = torch.randn(3, 4)
    for ordinary in (x, x.T, x[:, ::2], x[:0], x.requires_grad_(), torch.nn.Parameter(x.detach()), x * 2, x.half()):
        assert _torch.is_ordinary(ordinary)


def test_what_is_not_ordinary():
    x = torch.randn(3, 4)
    others = {
        "integers": torch.arange(3),
        "bools": x > 0,
        "complex": x.to(torch.complex64),
        "float8": x.to(torch.float8_e4m3fn),
        "sparse": x.to_sparse(),
        "nested": torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged),
        "without data": x.to("meta"),
        "negative view": torch.randn(3, dtype=torch.complex64).conj().imag,
        "subclass": x.as_subclass(Subclass),
    }
    for name, other in others.items():
        assert not _torch.is_ordinary(other), name


def test_nothing_is_ordinary_under_a_mode_or_transform():
    x = torch.randn(3, 4)
    with FakeTensorMode():
        assert not _torch.is_ordinary(x)
    seen = []
    torch.func.vmap(lambda row: seen.append(_torch.is_ordinary(row)) or row)(x)
    with forward_ad.dual_level():
        seen.append(_torch.is_ordinary(x))
    assert seen == [False, False]


def test_a_tensor_that_has_left_torch_func_grad_is_the_one_it_stood_for():
    x, target, left = torch.randn(3, 4), torch.tensor([0, 1, 2]), []
    torch.func.grad(lambda x: (left.append(x), x.sum())[1])(x)
    assert not _torch.is_ordinary(left[0])
    assert torch.equal(osm.softmax(left[0]), osm.softmax(x))
    assert torch.equal(osm.cross_entropy(left[0], target), osm.cross_entropy(x, target))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [-1, 0, 1, -2])
def test_softmax_is_the_same_both_ways(name, axis, dtype, long_way):
    base = torch.randn(6, 10, dtype=torch.float64).to(dtype)
    for x in (base, base[:, 1:8], base[:, ::2], base.T, base[:0], base[:, :0], base[:1].expand(6, 10)):
        x = x.detach().requires_grad_()

        def call(x=x):
            y = getattr(osm, name)(x, axis)
            return y, *torch.autograd.grad(y, x, torch.full_like(y, 0.5))

        with torch.no_grad():
            assert same(getattr(osm, name)(x, axis), long_way(lambda: getattr(osm, name)(x, axis)))  # noqa: B023
        assert all(map(same, call(), long_way(call)))


@pytest.mark.parametrize("arguments", [(5,), (-3,), (True,), ("0",), (1.0,)])
def test_softmax_refuses_the_same_both_ways(arguments, long_way):
    x = torch.randn(3, 4)
    with pytest.raises((TypeError, ValueError)) as short:
        osm.softmax(x, *arguments)
    with pytest.raises(type(short.value), match=f"^{re.escape(str(short.value))}$"):
        osm.softmax(x.double(), *arguments)
    with pytest.raises(ValueError, match="impl is 'gpu'"):
        osm.softmax(x, impl="gpu")
    with pytest.raises(ValueError, match="impl is 'gpu'"):
        long_way(lambda: osm.softmax(x, impl="gpu"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options", [{}, {"reduction": "sum"}, {"reduction": "none"}, {"return_aux": True, "z_loss": 1e-3}]
)
def test_cross_entropy_is_the_same_both_ways(options, dtype, long_way):
    x = torch.randn(7, 5, dtype=torch.float64).to(dtype).requires_grad_()
    target = torch.tensor([0, 4, 2, -100, 1, 1, 3])

    def call():
        found = osm.cross_entropy(x, target, **options)
        loss, *aux = (found[0], *found[1]) if options.get("return_aux") else (found,)
        made = osm.cross_entropy_with_grad(x, target, **options)[1]
        return loss, *aux, made, *torch.autograd.grad(loss, x, torch.ones_like(loss))

    assert all(map(same, call(), long_way(call)))


def test_rows_and_indices_are_what_preparing_makes_of_them():
    x, target, options = torch.randn(4, 5), torch.tensor([0, 1, 2, 3]), Options()
    short, long = arguments.as_they_are(x, target, options), arguments.prepare(x, target, None, None, options)
    assert short.logits is long.logits is x
    assert short.target is long.target is target
    assert short[2:6] == long[2:6]
    for back, given in (("to_rows", torch.randn(4)), ("to_input", x)):
        assert torch.equal(getattr(short, back)(given), getattr(long, back)(given))


def test_everything_else_is_prepared():
    x, target = torch.randn(4, 5), torch.tensor([0, 1, 2, 3])
    assert torch_op.are_rows_and_indices(x, target)
    others = [
        (x, target.int()),
        (x, target.to(torch.uint8)),
        (x, target[:3]),
        (x, target[:, None]),
        (x, torch.softmax(x, 1)),
        (x, target.numpy()),
        (x, [0, 1, 2, 3]),
        (x, target.as_subclass(Subclass)),
        (x, target.to("meta")),
        (x, target.to_sparse()),
        (x[0], target[0]),
        (x[:, :, None], target[:, None]),
        (x.int(), target),
        (x.as_subclass(Subclass), target),
    ]
    for logits, labels in others:
        assert not torch_op.are_rows_and_indices(logits, labels)


@pytest.mark.parametrize("rows", [3, 64, 65, 1000])
@pytest.mark.parametrize("bad", [-1, 5, 2**40])
def test_a_target_out_of_range_is_found_among_few_and_many(rows, bad):
    x, target = torch.randn(rows, 5), torch.zeros(rows, dtype=torch.int64)
    target[0] = -100
    osm.cross_entropy(x, target)
    target[rows - 1] = bad
    with pytest.raises(IndexError, match=rf"target\[{rows - 1}\] is {bad};"):
        osm.cross_entropy(x, target)
    with pytest.raises(IndexError, match=rf"target\[{rows - 1}\] is {bad};"):
        osm.cross_entropy(x.numpy(), np.asarray(target))
