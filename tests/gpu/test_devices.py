"""Two devices: every kernel runs where its tensors lie, and the distributed functions equal one device over NCCL."""

from __future__ import annotations

import threading

import pytest
import torch
from cases import DEVICE_LENGTHS as LENGTHS
from cases import assert_as_accurate_as_torch, random_rows
from rehearsal import MODULES
from tests.distributed.processes import names_of, run_modules

import online_softmax as osm

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
SECOND = "cuda:1"


@pytest.fixture(autouse=True)
def first_device_stays_current():
    torch.cuda.set_device(0)
    yield
    assert torch.cuda.current_device() == 0


def on_both(function, *tensors):
    """The function's results on the second device and on the first, as (second, first) pairs."""
    second = function(*(x.to(SECOND) for x in tensors))
    first = function(*tensors)
    assert all(x.device == torch.device(SECOND) for x in second)
    return zip(second, first, strict=True)


def assert_same(function, *tensors):
    for second, first in on_both(function, *tensors):
        assert torch.equal(second.to("cuda:0"), first)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("function", [osm.softmax, osm.log_softmax, osm.logsumexp])
def test_rows_and_their_gradients(function, length):
    def run(x):
        leaf = x.clone().requires_grad_()
        y = function(leaf, -1)
        (dx,) = torch.autograd.grad(y, leaf, torch.ones_like(y))
        return y.detach(), dx

    assert_same(run, random_rows(3, length, torch.float32).contiguous())


@pytest.mark.parametrize("function", [osm.softmax, osm.log_softmax, osm.logsumexp])
def test_other_axes(function):
    def run(x):
        leaf = x.clone().requires_grad_()
        y = function(leaf, 0)
        (dx,) = torch.autograd.grad(y, leaf, torch.ones_like(y))
        return y.detach(), dx

    assert_same(run, random_rows(700, 40, torch.float32).contiguous())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_losses_and_their_gradients(reduction, length):
    def run(x, target, weight):
        leaf = x.clone().requires_grad_()
        loss, aux = osm.cross_entropy(
            leaf, target, weight, reduction=reduction, label_smoothing=0.1, z_loss=1e-3, return_aux=True
        )
        (dx,) = torch.autograd.grad(loss, leaf, torch.full_like(loss, 0.5))
        return loss.detach(), aux.lse.detach(), aux.predicted, dx

    x = random_rows(9, length, torch.bfloat16).contiguous()
    assert_same(run, x, torch.arange(9, device="cuda:0"), torch.rand(length, device="cuda:0"))


@pytest.mark.parametrize("memory", ["fast", "least"])
def test_linear_cross_entropy(memory):
    def run(x, weight, target):
        leaves = [each.clone().requires_grad_() for each in (x, weight)]
        loss = osm.linear_cross_entropy(*leaves, target, memory=memory)
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    x, weight = (
        random_rows(64, 32, torch.float32).contiguous(),
        random_rows(500, 32, torch.float32, seed=1).contiguous(),
    )
    for second, first in on_both(run, x, weight, torch.arange(64, device="cuda:0")):
        torch.testing.assert_close(second.to("cuda:0"), first)


def test_merging_partial_results():
    def run(outs, lses):
        leaves = [x.clone().requires_grad_() for x in (outs, lses)]
        out, lse = osm.merge_attention(*leaves)
        return out.detach(), lse.detach(), *torch.autograd.grad(out.sum() + lse.sum(), leaves)

    outs = random_rows(3 * 7, 64, torch.float32).reshape(3, 7, 64)
    assert_same(run, outs, random_rows(3, 7, torch.float32).contiguous())


def test_both_devices_in_turn_on_default_and_other_streams():
    inputs = [random_rows(64, 50257, torch.float32).contiguous().to(device) for device in ("cuda:0", SECOND)]
    for _ in range(3):
        for x in inputs:
            assert_as_accurate_as_torch("softmax", x, osm.softmax(x))
            side = torch.cuda.Stream(x.device)
            side.wait_stream(torch.cuda.current_stream(x.device))
            with torch.cuda.stream(side):  # makes the stream's device the current one
                y = osm.softmax(x)
            side.synchronize()
            assert_as_accurate_as_torch("softmax", x, y)


def test_a_stream_of_the_second_device_is_used_while_the_first_device_is_current():
    x = random_rows(64, 4096, torch.float32).contiguous().to(SECOND)
    side = torch.cuda.Stream(x.device)
    side.wait_stream(torch.cuda.current_stream(x.device))
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        y = x + 1
        with torch.cuda.device(0):
            z = osm.softmax(y)
        y.zero_()
    side.synchronize()
    assert_as_accurate_as_torch("softmax", x + 1, z)


def test_a_new_thread_on_the_second_device():
    x = random_rows(8, 3001, torch.float32).contiguous().to(SECOND)
    results: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: results.append(osm.softmax(x)))
    thread.start()
    thread.join()
    assert_as_accurate_as_torch("softmax", x, results[0])


def test_warm_up_of_the_second_device():
    from online_softmax._cuda.launch import loaded_count

    osm.warm_up([4321], dtypes=[torch.float32], operations=["softmax"], device=SECOND)
    before = loaded_count()
    osm.softmax(random_rows(3, 4321, torch.float32).contiguous().to(SECOND))
    assert loaded_count() == before


def test_arguments_on_different_devices_are_refused():
    x = torch.zeros(3, 5, device=SECOND)
    with pytest.raises(TypeError, match="one library and one device"):
        osm.cross_entropy(x, torch.zeros(3, dtype=torch.int64, device="cuda:0"))
    with pytest.raises((TypeError, ValueError), match=r"out is .* on cuda:0; wanted .* on cuda:1"):
        osm.softmax(x, out=torch.empty(3, 5, device="cuda:0"))


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    return run_modules(MODULES, 2, [tmp_path_factory.mktemp("processes") for _ in MODULES], "cuda")


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in MODULES for name in names_of(module)])
def test_distributed_functions_over_nccl(ended, module, name):
    text = ended[module][name]
    assert text is None, text
