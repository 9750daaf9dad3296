"""How kernels are found, compiled once, and launched."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import torch
from cases import DEVICE, ONCE, assert_as_accurate_as_torch, errors, random_rows

from online_softmax.ops.cross_entropy.options import Options

if torch.cuda.is_available():
    from online_softmax._cuda.launch import loaded_count
    from online_softmax.ops.cross_entropy import cuda as ce
    from online_softmax.ops.softmax import cuda as gpu

_FIRST_USE = """
import time, torch
from online_softmax._cuda import compile
built = []
build = compile.build
compile.build = lambda *a: built.append(a) or build(*a)
from online_softmax.ops.softmax import cuda
x = torch.randn(3, 12345, device="cuda")
start = time.perf_counter()
y = cuda.softmax(x, 1, x.dtype)
torch.cuda.synchronize()
assert (y.double() - x.double().softmax(1)).abs().max() < 1e-6
print(len(built), time.perf_counter() - start)
"""


def test_a_second_process_compiles_nothing(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    run = [
        subprocess.run([sys.executable, "-c", _FIRST_USE], env=environment, capture_output=True, text=True)
        for _ in range(2)
    ]
    assert all(one.returncode == 0 for one in run), run
    first, second = (one.stdout.split() for one in run)
    assert first[0] == "1"
    assert second[0] == "0"
    assert float(first[1]) < 3


def test_a_thousand_lengths_need_a_few_dozen_kernels():
    before = loaded_count()
    for length in range(1, 300000, 299):
        x = torch.zeros(1, length, device=DEVICE, dtype=torch.bfloat16)
        gpu.softmax(x, 1, x.dtype)
    assert loaded_count() - before <= 48


def test_streams():
    x = random_rows(512, 4096, torch.float32)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        y = x + 1
        z = gpu.softmax(y, 1, x.dtype)
        y.zero_()
    side.synchronize()
    assert_as_accurate_as_torch("softmax", x + 1, z)


def test_first_use_inside_a_graph_capture():
    x = random_rows(16, 7777, torch.float32)
    target = torch.randint(0, 7777, (16,), device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = gpu.softmax(x, 1, x.dtype)
        result = ce.forward(x, target, None, None, Options(z_loss=1e-3), gradient=True)
        ce.rescale(result.gradient, result.divisors[0] / 8)
    for seed in (1, 2):
        x.copy_(random_rows(16, 7777, torch.float32, seed=seed))
        graph.replay()
        assert_as_accurate_as_torch("softmax", x, y)
        again = ce.forward(x, target, None, None, Options(z_loss=1e-3), gradient=True)
        assert torch.equal(result.loss, again.loss)
        assert torch.equal(result.gradient, ce.rescale(again.gradient, torch.full((), 2.0, device=DEVICE)))


def test_several_threads_at_once():
    x = random_rows(64, 3001, torch.bfloat16)
    exact = x.double().softmax(1)
    worst: list[float] = []

    def work() -> None:
        for length in (3001, 2500, 777):
            y = gpu.softmax(x[:, :length], 1, x.dtype)
            worst.append(errors("softmax", x[:, :length], y)[0])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(worst) == 24
    assert max(worst) <= ONCE
    assert exact.shape == x.shape
