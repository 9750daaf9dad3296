"""Cross-entropy of sharded classes, by the kernels' own code on the CPU, one process standing for all."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from tests.arrays import same_bits  # noqa: E402
from tests.cuda.emulator.cases import BF16, F32, F64, NAN  # noqa: E402
from tests.cuda.emulator.test_cross_entropy import (  # noqa: E402
    ALL,
    IGNORED,
    NONE,
    SMOOTH,
    Rows,
    assert_gradient,
    special_rows,
    truth_of,
    worst,
)
from tests.tolerances import close, eps  # noqa: E402

BORDERS = [0, 30, 30, 31, 1200, 3001]  # an empty shard, one class, and shards that begin on no 16 bytes


@pytest.fixture
def parts(device, monkeypatch):
    """(terms of each shard, its logits) of rows, every kernel emulated."""
    device.package("distributed")
    kernels = device.module("distributed.kernels")
    monkeypatch.setattr(device.module("distributed.rows"), "implementation", lambda *_: kernels.cuda)
    prepare = device.module("ops.cross_entropy.arguments").prepare
    shard = device.module("distributed.shards").Shard

    def of(rows, options, borders, num_items=None):
        found = []
        for start, stop in pairwise(borders):
            local = rows.logits[:, start:stop]
            ready = prepare(local, rows.target, None, num_items, options)
            place = shard(start, stop - start, borders[-1], None)
            found.append((kernels.KernelTerms.of(ready, rows.weight, place, "cuda"), local))
        return found

    return of


def everything(found, grad_loss):
    """What each process has of the loss, and the gradients side by side."""
    everybody = torch.stack([terms.columns(local) for terms, local in found])
    rows = [terms.losses(everybody) for terms, _ in found]
    losses = [terms.reduced(each) for (terms, _), each in zip(found, rows, strict=True)]
    for one, other in zip(losses, rows, strict=True):
        assert same_bits(one, losses[0])
        assert same_bits(other.whole.lse, rows[0].whole.lse)
    gradients = [
        terms.gradient(local, each.whole, grad_loss, None, True)
        for (terms, local), each in zip(found, rows, strict=True)
    ]
    return losses[0], rows[0].whole.lse, torch.cat(gradients, 1)


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("options", [NONE, SMOOTH, ALL, NONE._replace(z_loss=1e-2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_and_their_gradients(parts, dtype, options, weighted):
    rows = special_rows(BORDERS[-1], dtype, weighted)
    loss, lse, gradient = everything(parts(rows, options, BORDERS), torch.ones(13))
    truth = truth_of(rows, options)
    assert worst(loss, truth.loss, truth.top) <= 12
    assert worst(lse, truth.lse, truth.top) <= 12
    assert_gradient(gradient, truth)


@pytest.mark.parametrize("num_items", [None, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean(parts, num_items, weighted):
    options = ALL._replace(reduction="mean")
    rows = special_rows(BORDERS[-1], F32, weighted).some([0, 1, 2, 7, 8, 12])
    kept = rows.target != IGNORED
    by_row = by_class = num_items or int(kept.sum())
    if weighted and num_items is None:
        by_class = float(rows.weight.double()[rows.target[kept]].sum())
    loss, _, gradient = everything(parts(rows, options, BORDERS, num_items), torch.tensor(1.0))
    truth = truth_of(rows, options, by_class, by_row)
    z = torch.where(kept, options.z_loss * truth.lse**2, 0)
    want = (truth.loss - z).sum() / by_class + z.sum() / by_row
    assert worst(loss, want, truth.top.max()) <= 12
    assert_gradient(gradient, truth)


def test_a_dominant_class_keeps_its_small_loss_and_gradient(parts):
    logits = torch.full((1, 3001), -40.0)
    logits[0, 30] = 0.0  # by itself in its shard, where the sum with others would round to 1
    rows = Rows(logits, torch.tensor([30]), None)
    loss, _, gradient = everything(parts(rows, NONE, BORDERS), torch.ones(1))
    truth = truth_of(rows._replace(logits=logits.double()), NONE)
    small = 3000 * torch.exp(torch.tensor(-40.0, dtype=F64))
    assert abs(loss.double().item() / small.item() - 1) <= 8 * eps(F32)
    assert abs(gradient[0, 30].double().item() / -small.item() - 1) <= 8 * eps(F32)
    close(gradient[0, :30], truth.gradient[0, :30])


def test_a_label_that_two_shards_hold_has_no_loss(parts):
    rows = special_rows(100, F32, False).some([0, 1])
    rows.target[0] = 20
    (one, local), (two, _) = parts(rows, NONE, [0, 50, 100])
    everybody = torch.stack([one.columns(local), one.columns(local)])
    assert two.losses(everybody).ce.isnan().tolist() == [True, rows.target[1].item() < 50]


def test_the_gradient_may_take_the_place_of_the_logits(parts):
    rows = special_rows(BORDERS[-1], BF16, False)
    found = parts(rows, NONE, BORDERS)
    everybody = torch.stack([terms.columns(local) for terms, local in found])
    for terms, local in found:
        whole = terms.losses(everybody).whole
        wanted = terms.gradient(local, whole, torch.ones(13), None, True)
        room = local.clone()
        assert terms.gradient(room, whole, torch.ones(13), None, room) is room
        assert same_bits(room, wanted)
        outside = terms.gradient(local, whole, torch.full((13,), NAN), None, True)
        assert (outside[rows.target == IGNORED] == 0).all()


def test_chunks_of_a_vocabulary_merge_alike(device):
    """merge_shards of shards.cu, between the sweeps of linear_cross_entropy(memory="least")."""
    from online_softmax._arrays import namespace
    from online_softmax._cuda.compile import Source
    from online_softmax.ops.cross_entropy.parts import merge_parts

    step, chunks = 1000, 3
    rows = special_rows(chunks * step, F32, False)
    exact = torch.stack([rows.logits[:, i * step : (i + 1) * step].double().logsumexp(1) for i in range(chunks)])
    lses = exact.float()
    lows = torch.where(lses.isfinite(), exact - lses, 0).float()
    # Of the chunk that has the class; what stands for the others is not read.
    losses = (exact - rows.logits.double().gather(1, rows.target.clamp(0, chunks * step - 1)[:, None])[:, 0]).float()
    loss, lse, low = out = torch.full((3, lses.shape[1]), NAN)
    macros = ("COMPUTE", "float"), ("LABEL", "long long")
    kernel = device.load(0, Source("ops/linear_cross_entropy/shards.cu", "merge_shards", macros), 128)
    labels = rows.target.data_ptr(), 1, len(loss), chunks * step, IGNORED, step, chunks
    tables = losses.data_ptr(), lses.data_ptr(), lows.data_ptr()
    kernel(1, *labels, *tables, 0.0, *(each.data_ptr() for each in out))
    want = merge_parts(namespace(lses), lses, lows)
    assert worst(lse, want[0].double(), torch.zeros(())) <= 2
    close(lse.double() + low, want[0].double() + want[1], atol=4 * eps(F32))
    truth = truth_of(rows, NONE)
    assert worst(loss, truth.loss, truth.top) <= 12
