"""Ring attention against attention over the whole sequence on one device."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.distributed.expected import close_gradient

import online_softmax as osm
from online_softmax import distributed


def whole_attention(q, k, v, causal, lengths):
    """Sequence by sequence, as packed along the axis."""
    parts, start = [], 0
    for length in lengths:
        part = slice(start, start + length)
        pieces = (x[..., part, :] for x in (q, k, v))
        parts.append(osm.attention(*pieces, causal=causal, return_lse=True))
        start += length
    return torch.cat([out for out, _ in parts], -2), torch.cat([lse for _, lse in parts], -1)


def case_equals_one_device(rank, size):
    for lengths, causal, heads in itertools.product(([16], [37], [5, 0, 22, 1]), (False, True), ((4, 4), (4, 2))):
        total = sum(lengths)
        shapes = ((2, heads[0], total, 8), (2, heads[1], total, 8), (2, heads[1], total, 6))
        q, k, v = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
        local = [distributed.shard_sequence(x.detach(), lengths=lengths).requires_grad_() for x in (q, k, v)]
        want, want_lse = whole_attention(q, k, v, causal, lengths)
        got, lse = distributed.ring_attention(*local, causal=causal, lengths=lengths, return_lse=True)
        torch.testing.assert_close(distributed.gather_sequence(got, lengths=lengths), want.detach())
        torch.testing.assert_close(distributed.gather_sequence(lse, -1, lengths=lengths), want_lse.detach())
        up, up_lse = torch.randn_like(want), torch.randn_like(want_lse)
        torch.autograd.backward([want, want_lse], [up, up_lse])
        mine = distributed.shard_sequence(up, lengths=lengths), distributed.shard_sequence(up_lse, -1, lengths=lengths)
        torch.autograd.backward([got, lse], mine)
        for x, whole in zip(local, (q, k, v), strict=True):
            torch.testing.assert_close(distributed.gather_sequence(x.grad, lengths=lengths), whole.grad)


def case_nothing_to_attend_to_is_an_empty_result(rank, size):
    no_positions, no_heads, no_batch = (2, 4, 0, 8), (2, 0, 2, 8), (0, 4, 2, 8)
    calls = [(no_positions, lengths) for lengths in ([], [0], [0, 0], None)]
    for shape, lengths in [*calls, (no_heads, None), (no_batch, None)]:
        q, k, v = (torch.zeros(shape, requires_grad=True) for _ in range(3))
        out, lse = distributed.ring_attention(q, k, v, causal=True, lengths=lengths, return_lse=True)
        (out.sum() + lse.sum()).backward()
        assert out.shape == q.grad.shape == v.grad.shape == shape
        assert lse.shape == shape[:-1]
    empty = torch.zeros(no_positions)
    assert distributed.shard_sequence(empty, lengths=[]).shape == empty.shape
    assert distributed.gather_sequence(empty, lengths=[0, 0]).shape == empty.shape


def case_half_precision_and_gradient_of_the_output_alone(rank, size):
    q, k, v = (torch.randn(1, 2, 64, 16).to(torch.bfloat16).requires_grad_() for _ in range(3))
    local = [distributed.shard_sequence(x.detach()).requires_grad_() for x in (q, k, v)]
    want = osm.attention(q, k, v, causal=True)
    got = distributed.ring_attention(*local, causal=True, debug=True)
    close_gradient(distributed.gather_sequence(got, lengths=[64]), want.detach())
    up = torch.randn_like(want)
    want.backward(up)
    got.backward(distributed.shard_sequence(up))
    for x, whole in zip(local, (q, k, v), strict=True):
        close_gradient(distributed.gather_sequence(x.grad, lengths=[64]), whole.grad)


def case_every_process_has_the_same_causal_work(rank, size):
    from online_softmax.distributed.ring import _Ring

    work = []
    for each in range(size):
        ring = _Ring(each, size, None, (64 * size,), True, 1.0, "auto")
        blocks = [block for owner in range(size) for block in ring.blocks(owner)]
        pairs = [(b.queries.stop - b.queries.start, b.keys.stop - b.keys.start, b.causal) for b in blocks]
        work.append(sum(i * j / (1 + causal) for i, j, causal in pairs))
    assert len(set(work)) == 1


def case_wrong_arguments_are_errors(rank, size):
    q = torch.randn(1, 4, 6, 8)
    with pytest.raises(ValueError, match="even number"):
        distributed.ring_attention(q[..., :5, :], q[..., :5, :], q[..., :5, :])
    with pytest.raises(ValueError, match="shard_sequence"):
        distributed.ring_attention(q, q, q, lengths=[6])
    with pytest.raises(ValueError, match="key heads dividing heads"):
        distributed.ring_attention(q, q[:, :3], q[:, :3])
    with pytest.raises(ValueError, match="disagree about causal"):
        distributed.ring_attention(q, q, q, causal=rank == 0, debug=True)
    for k in (q[:, :, :, :7], q[:, :, :4], q[:0], q[0]):
        with pytest.raises(ValueError, match="head size"):
            distributed.ring_attention(q, k, k)
    with pytest.raises(ValueError, match="key heads dividing heads"):
        distributed.ring_attention(q, q[:, :0], q[:, :0])
    with pytest.raises(TypeError, match=r"q has .*int64.*; wanted a floating dtype"):
        distributed.ring_attention(*[q.long()] * 3)
    with pytest.raises(ValueError, match="lengths sum to"):
        distributed.shard_sequence(q, lengths=[5])


def case_lengths_and_ranks_are_checked(rank, size):
    q = torch.zeros(1, 4, 6, 8)
    for call in (
        lambda lengths: distributed.ring_attention(q, q, q, lengths=lengths),
        lambda lengths: distributed.shard_sequence(q, lengths=lengths),
        lambda lengths: distributed.gather_sequence(q, lengths=lengths),
        lambda lengths: distributed.local_lengths(lengths, rank, size),
    ):
        for lengths, error in (([7 * size, -size], ValueError), ([6.0 * size], TypeError), (6 * size, TypeError)):
            with pytest.raises(error, match=r"lengths is .*; wanted a sequence of ints from 0 on"):
                call(lengths)
    for wrong in (-1, size):
        with pytest.raises(ValueError, match=f"rank is {wrong}; wanted 0 to {size - 1}, as size is {size}"):
            distributed.local_lengths([3, 5, 0], wrong, size)
    with pytest.raises(ValueError, match="size is 0"):
        distributed.local_lengths([3], 0, 0)


def case_autocast(rank, size):
    q, k, v = (torch.randn(1, 2, 8 * size, 16) for _ in range(3))
    local = [distributed.shard_sequence(x).requires_grad_() for x in (q, k, v)]
    kind = torch.get_default_device().type
    with torch.autocast(kind, torch.bfloat16):
        got, want = distributed.ring_attention(*local, causal=True), osm.attention(q, k, v, causal=True)
    assert got.dtype == want.dtype == torch.bfloat16
    mine = distributed.shard_sequence(want)
    torch.testing.assert_close(got, mine, rtol=2e-2, atol=2e-2)
    got.sum().backward()
    assert all(x.grad.dtype == torch.float32 for x in local)
