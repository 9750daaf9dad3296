"""softmax, log_softmax, logsumexp and merge over a sharded axis, against one process with all of it."""

from __future__ import annotations

import itertools

import torch
from tests.distributed.expected import close_gradient, within_ulps
from tests.distributed.sharded import cuts

import online_softmax as osm
from online_softmax import distributed


def case_softmax_log_softmax_logsumexp(rank, size):
    for dtype, axis in itertools.product((torch.float32, torch.float64, torch.bfloat16), (-1, 0)):
        borders = cuts(size, False)
        x = (torch.randn(6, borders[-1], dtype=torch.float64) * 3).to(dtype)
        x[1, 35:] = -torch.inf
        x = x if axis == -1 else x.T.contiguous()
        length = borders[rank + 1] - borders[rank]
        for name in ("softmax", "log_softmax", "logsumexp"):
            whole = x.clone().requires_grad_()
            local = x.narrow(axis, borders[rank], length).clone().requires_grad_()
            want, got = getattr(osm, name)(whole, axis), getattr(distributed, name)(local, axis)
            upstream = torch.randn(want.shape).to(dtype)
            mine = upstream if name == "logsumexp" else upstream.narrow(axis, borders[rank], length)
            want.backward(upstream)
            got.backward(mine)
            want = want.detach() if name == "logsumexp" else want.detach().narrow(axis, borders[rank], length)
            within_ulps(got.detach(), want, 2.0 if dtype != torch.bfloat16 else 1.0, 10.0 if name != "softmax" else 1.0)
            close_gradient(local.grad, whole.grad.narrow(axis, borders[rank], length), whole.grad)


def case_integers_become_the_default_dtype(rank, size):
    x = torch.arange(4 * size).reshape(2, 2 * size)
    mine = slice(2 * rank, 2 * rank + 2)
    within_ulps(distributed.softmax(x[:, mine]), osm.softmax(x)[:, mine], 2.0)
    within_ulps(distributed.logsumexp(x[:, mine]), osm.logsumexp(x, -1), 2.0)


def case_infinite_rows_as_on_one_device(rank, size):
    borders = cuts(size, False)
    x = torch.randn(4, borders[-1])
    x[0] = -torch.inf
    x[1, [2, 31, 35]] = torch.inf
    x[2, 33] = torch.nan
    mine = slice(borders[rank], borders[rank + 1])
    assert torch.equal(distributed.softmax(x[:, mine]).isnan(), osm.softmax(x)[:, mine].isnan())
    assert torch.equal(distributed.log_softmax(x[:, mine]).isnan(), osm.log_softmax(x)[:, mine].isnan())
    whole, local = x.clone().requires_grad_(), x[:, mine].clone().requires_grad_()
    want, got = osm.logsumexp(whole, -1), distributed.logsumexp(local)
    within_ulps(got.detach(), want.detach(), 2.0)
    want.sum().backward()
    got.sum().backward()
    close_gradient(local.grad, whole.grad[:, mine], whole.grad)


def case_all_merge(rank, size):
    x, values = torch.randn(3, 8 * size, dtype=torch.float64), torch.randn(3, 8 * size, 5, dtype=torch.float64)
    x[1] = -torch.inf
    mine = slice(8 * rank, 8 * rank + 8)
    got = distributed.all_merge(osm.State.of(x[:, mine], values=values[:, mine]))
    want = osm.State.of(x, values=values)
    torch.testing.assert_close(got.logsumexp(), want.logsumexp())
    torch.testing.assert_close(got.output(), want.output())
    assert distributed.all_merge(osm.State.of(x[:, mine])).v is None
    local = x[[0, 2]][:, mine].clone().requires_grad_()
    distributed.all_merge(osm.State.of(local)).logsumexp().sum().backward()
    torch.testing.assert_close(local.grad, osm.softmax(x[[0, 2]])[:, mine])
