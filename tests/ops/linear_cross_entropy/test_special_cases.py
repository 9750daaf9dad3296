"""Empty batches, rows that count for nothing, odd sizes and strides, extreme values, and what is refused."""

import math
import weakref

import numpy as np
import pytest
import torch
from tests.arrays import INF, NAN, float64
from tests.ops.linear_cross_entropy import common
from tests.ops.linear_cross_entropy.common import WAYS, arguments, gradients, loss_of
from tests.tolerances import close

import online_softmax as osm
from online_softmax.ops.linear_cross_entropy import products

EVERY_WAY = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    common.small_chunks(monkeypatch)


@EVERY_WAY
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1, "z_loss": 0.1, "weight": torch.ones(7).double()}])
def test_a_batch_with_nothing_in_it(ignored, options, way, impl):
    x, w, b = arguments(5 if ignored else 0)
    target = torch.full((len(x),), -100)
    for reduction in ("mean", "sum", "none"):
        for aux in (False, True):
            loss = loss_of((x, w, b), target, reduction=reduction, return_aux=aux, impl=impl, **WAYS[way], **options)
            loss = loss[0] if aux else loss
            assert loss.shape == ((len(x),) if reduction == "none" else ())
            assert bool(loss.isnan().all() if reduction == "mean" else (loss == 0).all())
            for gradient, leaf in zip(gradients(loss.sum(), (x, w, b)), (x, w, b), strict=True):
                assert gradient.shape == leaf.shape
                assert (gradient == 0).all()


@EVERY_WAY
def test_arrays_with_nothing_in_them(way):
    with np.errstate(all="raise"):
        loss, grads = osm.linear_cross_entropy_with_grads(
            np.ones((0, 3)), np.ones((4, 3)), np.ones(0, int), **WAYS[way]
        )
    assert math.isnan(loss)
    assert (grads.linear_weight == 0).all()


@EVERY_WAY
@pytest.mark.parametrize("aux", [False, True])
def test_an_ignored_row_of_nan_spoils_nothing(aux, way, impl):
    for smoothing in (0.0, 0.1):
        leaves, target = arguments(), common.targets(ignored=(2, 7))
        options = {"label_smoothing": smoothing, "z_loss": 0.1}
        want = gradients(common.true_loss(leaves, target, **options), leaves)
        x, w, b = leaves
        spoiled = x.detach().clone()
        spoiled[2], spoiled[7, 0] = NAN, INF
        given = (spoiled.requires_grad_(), w, b)
        loss = loss_of(given, target, return_aux=aux, impl=impl, **options, **WAYS[way])
        loss, rows = loss if aux else (loss, None)
        got = gradients(loss, given)
        for one, right in zip(got, want, strict=True):
            close(one, right, 256, atol=1e-14)
        if rows is not None:
            assert rows.lse[2].isnan()


@EVERY_WAY
def test_a_kept_row_of_nan_spoils_its_own_gradient_and_the_head_s(way, impl):
    x, w, b = arguments()
    x.data[2, 1] = NAN
    loss = loss_of((x, w, b), common.targets(), reduction="none", impl=impl, **WAYS[way])
    assert loss.isnan().nonzero().tolist() == [[2]]
    dx, dw, _ = gradients(loss.sum(), (x, w, b))
    assert dx.isnan().any(1).nonzero().tolist() == [[2]]
    assert dw.isnan().any()


@EVERY_WAY
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_classes_masked_by_a_bias_of_minus_infinity(smoothing, way, impl):
    """Whole chunks of them too; their probability is 0, and a target among them costs infinity."""
    leaves = arguments()
    leaves[2].data[:4] = -INF
    weight = torch.tensor([0.0] * 4 + [1.0, 2.0, 0.5]).double()
    target = torch.arange(11) % 3 + 4
    options = {"label_smoothing": smoothing, "weight": weight if smoothing else None}
    loss = loss_of(leaves, target, impl=impl, **options, **WAYS[way])
    x, w, b = leaves
    few = (x, w[4:], b[4:])
    few_options = {"label_smoothing": smoothing * 3 / 7 / (1 - smoothing * 4 / 7)} if smoothing else {}
    scale = 1 - smoothing * 4 / 7
    want = scale * common.true_loss(few, target - 4, weight[4:] if smoothing else None, **few_options)
    close(loss, want, 64)
    for got, right in zip(gradients(loss, leaves), gradients(want, leaves), strict=True):
        close(got, right, 256, atol=1e-14)
    lost = loss_of(leaves, torch.zeros(11, dtype=torch.int64), reduction="none", impl=impl, **WAYS[way])
    assert (lost == INF).all()


@EVERY_WAY
@pytest.mark.parametrize(("rows", "features", "classes"), [(1, 1, 1), (1, 5, 9), (3, 7, 2), (13, 3, 31), (2, 1, 50)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odd_sizes(rows, features, classes, dtype, way, impl):
    leaves, target = arguments(rows, features, classes, dtype), common.targets(rows, classes)
    want = common.true_loss(leaves, target)
    loss = loss_of(leaves, target, impl=impl, **WAYS[way])
    close(loss, want, 64, atol=1e-6 if dtype == "float32" else 1e-15)
    for got, right in zip(gradients(loss, leaves), gradients(want, leaves), strict=True):
        close(got, right, 256, atol=1e-6 if dtype == "float32" else 1e-14)


@EVERY_WAY
def test_strides_of_every_kind(way, kind, impl):
    x, w, b = (t.detach() for t in arguments())
    target = common.targets()
    plain, grads = osm.linear_cross_entropy_with_grads(x, w, target, linear_bias=b, impl=impl)
    views = {
        "transposed": lambda t: t.T.contiguous().T,
        "every second": lambda t: t.repeat_interleave(2, -1)[..., ::2],
        "inside another": lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]],
    }
    for view in views.values():
        given = [view(t) if t.ndim == 2 else t for t in (x, w, b)]
        t = target.repeat_interleave(2)[::2]
        if kind == "numpy":
            given, t = [g.numpy() for g in given], t.numpy()
        loss, found = osm.linear_cross_entropy_with_grads(
            given[0], given[1], t, linear_bias=given[2], impl=impl, **WAYS[way]
        )
        close(loss, plain, 16)
        for got, right in zip(found, grads, strict=True):
            close(got, right, 64, atol=1e-15)
    one = x[:1].expand(11, 4)
    close(
        osm.linear_cross_entropy(one, w, target, reduction="sum", impl=impl, **WAYS[way]),
        common.true_loss((one, w, None), target, reduction="sum"),
        32,
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_arrays_are_multiplied_in_fp32(dtype, impl):
    x, w, b = (t.detach() for t in arguments(dtype="float32"))
    narrow = dtype if dtype == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    x, w, b = (t.numpy().astype(narrow) for t in (x, w, b))
    loss, grads = osm.linear_cross_entropy_with_grads(x, w, common.targets().numpy(), linear_bias=b, impl=impl)
    leaves = [torch.from_numpy(float64(t)).requires_grad_() for t in (x, w, b)]
    want = common.true_loss(leaves, common.targets())
    assert loss.dtype == np.float32
    close(loss, want, 16)
    for got, right in zip(grads, gradients(want, leaves), strict=True):
        assert got.dtype == x.dtype
        close(got, right, 1, atol=1e-6)


@EVERY_WAY
def test_widely_spread_fp16_logits(way, impl):
    x = torch.tensor([[1.0], [2.0]], dtype=torch.float16, requires_grad=True)
    w = torch.tensor([[0.0], [-9000.0], [-20000.0]], dtype=torch.float16, requires_grad=True)
    loss = osm.linear_cross_entropy(x, w, torch.tensor([1, 0]), reduction="none", impl=impl, **WAYS[way])
    close(loss, [9000.0, 0.0])
    loss[0].backward()
    close(w.grad, [[1.0], [-1.0], [0.0]], 1)
    assert torch.isfinite(x.grad).all()


@EVERY_WAY
def test_fp32_logits_far_from_zero_keep_their_gradient(way, impl):
    """At 2²⁰ a rounded log-sum-exp alone is off by 6 %."""
    leaves = arguments(dtype="float32", bias=True)
    leaves[2].data += 2.0**20
    target = common.targets()
    want = gradients(common.true_loss(leaves, target, reduction="sum"), leaves)
    x, w, b = (t.detach().double() for t in leaves)
    # The product's own rounding at this distance: an eighth.  Classes 0 and 1 alone differ by more.
    rounded = (x.float() @ w.float().T + b.float()).double()
    p = torch.softmax(rounded, 1)
    p[torch.arange(11), target] -= 1
    got = gradients(loss_of(leaves, target, reduction="sum", impl=impl, **WAYS[way]), leaves)
    close(got[2], p.sum(0), 64, atol=1e-4)
    assert want[2].shape == got[2].shape


class TestErrors:
    """Each names the argument, what came and what is wanted."""

    @pytest.mark.parametrize("bad", [7, 1000, -1, -101, 2**31])
    def test_a_target_out_of_range(self, bad, kind, impl):
        x, w, _ = (None if t is None else t.detach() for t in arguments(12))
        t = common.targets(12)
        t[5] = bad
        x, t = x.reshape(3, 4, 4), t.reshape(3, 4)
        if kind == "numpy":
            x, w, t = x.numpy(), w.numpy(), t.numpy()
        for way in WAYS.values():
            with pytest.raises(IndexError, match=rf"target\[1, 1\] is {bad}; wanted a class from 0 to 6"):
                osm.linear_cross_entropy(x, w, t, impl=impl, **way)

    @pytest.mark.parametrize(
        ("change", "error", "text"),
        [
            ({"linear_weight": torch.zeros(0)}, ValueError, "linear_weight has shape .*FSDP.*gathered first"),
            ({"linear_weight": torch.zeros(0, 4)}, ValueError, "linear_weight has shape .*gathered first"),
            ({"linear_weight": torch.zeros(7, 5)}, ValueError, r"linear_weight has shape \(7, 5\).*H = 4"),
            ({"linear_weight": torch.zeros(7, 4).half()}, TypeError, "linear_weight has dtype float16, input float32"),
            ({"linear_weight": torch.zeros(7, 4, device="meta")}, TypeError, "linear_weight is a Tensor .*meta"),
            ({"linear_weight": np.zeros((7, 4), np.float32)}, TypeError, "linear_weight is a ndarray"),
            ({"linear_weight": [[0.0] * 4] * 7}, TypeError, "linear_weight is a list, input a Tensor"),
            ({"weight": [1.0] * 7}, TypeError, "weight is a list, input a Tensor"),
            ({"return_aux": "yes"}, TypeError, "return_aux is 'yes'; wanted True or False"),
            ({"linear_bias": torch.zeros(6)}, ValueError, r"linear_bias has shape \(6,\).*wanted shape \(7,\)"),
            ({"linear_bias": torch.zeros(7).double()}, TypeError, "linear_bias has dtype float64, input float32"),
            ({"linear_bias": torch.zeros(7, device="meta")}, TypeError, "linear_bias is a Tensor .*meta"),
            ({"input": torch.zeros(())}, ValueError, r"input has shape \(\)"),
            ({"target": torch.zeros(3, dtype=torch.int64)}, ValueError, r"target has shape \(3,\).*shape \(11,\)"),
            ({"target": torch.zeros(11, 6)}, ValueError, r"target has shape \(11, 6\).*shape \(11, 7\)"),
            ({"target": torch.zeros(11, dtype=torch.bool)}, TypeError, "target has .*bool"),
            ({"target": torch.ones(11, 7, requires_grad=True)}, ValueError, "target requires grad"),
            ({"target": torch.ones(11, 7), "ignore_index": 3}, ValueError, "ignore_index is 3"),
            ({"weight": torch.ones(6)}, ValueError, r"weight has shape \(6,\)"),
            ({"num_items": 3, "reduction": "sum"}, ValueError, "num_items"),
            ({"num_items": 0}, ValueError, "num_items is 0"),
            ({"reduction": "max"}, ValueError, "reduction is 'max'"),
            ({"softcap": 0.0}, ValueError, "softcap is 0.0"),
            ({"label_smoothing": 2.0}, ValueError, "label_smoothing is 2.0"),
            ({"impl": "cuda"}, ValueError, "impl is 'cuda'"),
            ({"impl": "fast"}, ValueError, "impl is 'fast'"),
            ({"input": torch.zeros(11, 4, dtype=torch.complex64)}, TypeError, "input has dtype complex64"),
        ],
    )
    def test_arguments_that_do_not_fit(self, change, error, text):
        x, w, b = arguments(dtype="float32")
        given = {"input": x, "linear_weight": w, "target": common.targets(), "linear_bias": b} | change
        with pytest.raises(error, match=text):
            osm.linear_cross_entropy(**given)

    def test_another_library_s_arrays(self):
        strict = pytest.importorskip("array_api_strict")
        with pytest.raises(TypeError, match="wanted a NumPy array or a torch tensor"):
            osm.linear_cross_entropy(strict.ones((2, 3)), strict.ones((4, 3)), strict.asarray([0, 1]))

    def test_a_sharded_weight_is_to_be_gathered(self):
        distributed = pytest.importorskip("torch.distributed")
        if not distributed.is_available():
            pytest.skip("torch without torch.distributed")
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        from torch.testing._internal.distributed.fake_pg import FakeStore

        distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        try:
            sharded = distribute_tensor(torch.zeros(8, 4), init_device_mesh("cpu", (2,)), [Shard(0)])
            with pytest.raises(TypeError, match=r"linear_weight is a DTensor .*gather first"):
                osm.linear_cross_entropy(torch.zeros(3, 4), sharded, torch.zeros(3, dtype=torch.int64))
        finally:
            distributed.destroy_process_group()


@EVERY_WAY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"scale": 1.3}, {"scale": -0.7}, {"softcap": 3.0}])
def test_the_predicted_class_is_that_of_whole_rows(options, dtype, way, impl):
    # In bf16 scaled logits would tie that differ, and a softcap that saturates makes logits tie: the first one counts.
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(500, 8, generator=generator) * 2).to(dtype)
    w = torch.randn(60, 8, generator=generator).to(dtype)
    target = torch.zeros(len(x), dtype=torch.int64)
    how = {"return_aux": True, "impl": impl, **options}
    found = osm.linear_cross_entropy(x, w, target, **how, **WAYS[way])[1].predicted
    assert torch.equal(found, osm.cross_entropy(x @ w.T, target, **how)[1].predicted)


@EVERY_WAY
def test_inputs_of_no_features(way, impl):
    loss = osm.linear_cross_entropy(
        torch.zeros(2, 3, 0), torch.zeros(5, 0), torch.zeros(2, 3, dtype=torch.int64), impl=impl, **WAYS[way]
    )
    close(loss, math.log(5.0), 4)


def test_losses_that_wait_hold_one_chunk_together(impl, monkeypatch):
    held = []

    def counted(*arguments):
        made = allocate(*arguments)
        held.append(weakref.ref(made))
        assert sum(each() is not None for each in held) == 1
        return made

    allocate = products.buffer
    monkeypatch.setattr(products, "buffer", counted)
    leaves, target = arguments(), common.targets()
    waiting = [loss_of(leaves, target, memory="least", impl=impl) for _ in range(3)]
    assert len(held) == len(waiting)
