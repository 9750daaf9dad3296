"""What forward keeps for backward: three arrays, or one that is taken apart when asked for."""

import torch

from online_softmax.ops.cross_entropy.options import HEAD_BYTES, Forward, Packed, Saved


def both(rows):
    losses, lse, low, divisors = (torch.randn(n) for n in (rows, rows, rows, 2))
    whole = Forward(losses.sum(), lse, low, divisors, None, None, None, torch.randn(rows, 3))
    return whole, Packed(
        whole.loss, torch.cat([divisors, torch.zeros(HEAD_BYTES // 4 - 2), losses, lse, low]), whole.gradient
    )


def test_a_packed_forward_has_the_fields_of_one_that_is_not():
    for rows in (1, 5):
        whole, packed = both(rows)
        for name in Forward._fields:
            one, other = getattr(whole, name), getattr(packed, name)
            assert one is other is None or torch.equal(one, other), name
        for one, other in zip(whole, packed, strict=True):
            assert one is other is None or torch.equal(one, other)


def test_what_is_kept_comes_back():
    whole, packed = both(4)
    assert len(whole.to_keep) == 3
    assert len(packed.to_keep) == 1
    for kept in (whole.to_keep, packed.to_keep):
        assert all(map(torch.equal, Saved.kept(kept), whole.saved))
