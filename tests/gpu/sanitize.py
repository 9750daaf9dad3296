"""Every kernel once, on small, uneven and unaligned inputs, under each tool of compute-sanitizer: make gpu-sanitize.

python tests/gpu/sanitize.py [SECONDS]  compiles, runs itself under every tool, prints a line for each; fails on errors
python tests/gpu/sanitize.py --reach    calls the kernels and nothing else
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

TOOLS = ("memcheck", "racecheck", "synccheck")
LIMIT_S = 300
# A group of lanes, a warp, a block, clusters of 2 and 16, shared memory (also with words beyond it in
# backward, and with blocks that stay), split.
LENGTHS = (13, 501, 2500, 9001, 20001, 200003, 300001, 500001, 900001, 1600001)
MANY = 40000
"""Rows that several blocks count."""


def rows(length: int, device: str, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Three short rows or one long one: under the tools every access to memory takes a hundred times as long."""
    count = 3 if length < 100000 else 1
    return torch.randn(count, length + 3, device=device).to(dtype)[:, 1 : length + 1]


def reach_softmax(device: str) -> None:
    from online_softmax.ops.softmax import cuda as softmax

    for length in LENGTHS:
        x = rows(length, device)
        for forward, backward in (
            (softmax.softmax, softmax.softmax_backward),
            (softmax.log_softmax, softmax.log_softmax_backward),
        ):
            y = forward(x, 1, x.dtype)
            backward(x, y, 1, x.dtype)
        lse = softmax.logsumexp(x, 1, torch.float32)
        softmax.logsumexp_backward(lse, x, lse, 1)
    line = rows(999, device, torch.float32)
    line[1] = torch.inf
    for axis in (0, 1):
        y = softmax.softmax(line.t(), axis, line.dtype)
        softmax.softmax_backward(line.t().contiguous(), y, axis, line.dtype)
        lse = softmax.logsumexp(line.t(), axis, line.dtype)
        softmax.logsumexp_backward(lse, line.t(), lse, axis)
    for length in (2, 300001, 1600001):  # small terms are summed once more: in registers, in shared memory, over blocks
        dominated = torch.full((1, length), -60.0, device=device)
        dominated[:, 0] = 0
        softmax.logsumexp(dominated, 1, torch.float32)
        softmax.logsumexp(dominated[:, :999].t(), 0, torch.float32)
        softmax.log_softmax(dominated, 1, torch.float32)


def reach_cross_entropy(device: str) -> None:
    from online_softmax.ops.cross_entropy import cuda as cross_entropy
    from online_softmax.ops.cross_entropy.options import Options

    for length in LENGTHS:
        x = rows(length, device)
        target = torch.tensor([length - 1, 0, -100], device=device)[: x.shape[0]]
        weight = torch.rand(length, device=device)
        for made in (torch.empty_like(x), True, True):  # three launches, or one; the last by what was kept
            result = cross_entropy.forward(x, target, None, None, Options(), gradient=made)
        cross_entropy.rescale(result.gradient, result.loss)
        given = result.saved
        cross_entropy.backward(x, target, None, *given, Options(), result.loss, result.lse)
        every = Options(label_smoothing=0.1, scale=0.5, softcap=20.0, z_loss=1e-3)
        if 2500 <= length <= 300001:  # in kernels of their own
            cross_entropy.forward(x, target, weight, None, every, gradient=True)
            cross_entropy.forward(x, target, weight, None, Options(label_smoothing=0.1), gradient=True)
        if length in (501, 9001, 1600001):
            cross_entropy.forward(x, target, weight, None, every, aux=True, gradient=True)
            cross_entropy.backward(x, target, weight, *given, every, result.loss, result.lse)
            probabilities = torch.softmax(x.float(), 1)
            cross_entropy.forward(x, probabilities, None, None, Options(), gradient=True)
            cross_entropy.backward(x, probabilities, weight, *given, every, result.loss, result.lse)
    many = torch.zeros(MANY, device=device, dtype=torch.int64)
    for options in (Options(), Options(reduction="sum", z_loss=1e-3)):
        cross_entropy.forward(torch.randn(MANY, 4, device=device), many, None, None, options)


def reach_attention(device: str) -> None:
    from online_softmax import merge_attention

    for count, size in ((3, 40), (8, 128), (11, 5), (40, 1030)):  # listed and stacked, counted ahead and at run time
        outs = torch.randn(count, 7, size, device=device, requires_grad=True)
        lses = torch.randn(count, 7, device=device, requires_grad=True)
        for given in ((outs, lses), (list(outs), list(lses))):
            out, lse = merge_attention(*given)
            (out.sum() + lse.sum()).backward()


def reach_linear(device: str) -> None:
    from online_softmax import linear_cross_entropy
    from online_softmax.ops.linear_cross_entropy import cuda_ignored, plan

    plan.LEAST_BYTES = dict.fromkeys(plan.LEAST_BYTES, 1)  # a vocabulary of two chunks
    target = torch.randint(0, 1000, (37,), device=device)
    target[3] = -100
    for reduction in ("mean", "none"):
        x, weight = (torch.randn(rows, 24, device=device, requires_grad=True) for rows in (37, 1000))
        loss = linear_cross_entropy(x, weight, target, reduction=reduction, z_loss=1e-3, memory="least")
        loss.sum().backward()
    cuda_ignored.without_ignored(x.detach(), target, -100, None)


def reach_distributed(device: str) -> None:
    """Two shards, one process standing for both."""
    from online_softmax.distributed.kernels import KernelTerms
    from online_softmax.distributed.shards import Shard
    from online_softmax.ops.cross_entropy.arguments import prepare
    from online_softmax.ops.cross_entropy.options import Options

    x, cuts = rows(5001, device), ((0, 1999), (1999, 5001))
    target = torch.tensor([5000, 0, -100], device=device)
    for weight, options in (
        (None, Options()),
        (torch.rand(5001, device=device), Options(label_smoothing=0.1, scale=0.5, softcap=20.0, z_loss=1e-3)),
    ):
        found = []
        for start, stop in cuts:
            ready = prepare(x[:, start:stop], target, None, None, options)
            found.append(KernelTerms.of(ready, weight, Shard(start, stop - start, 5001, None), "cuda"))
        parts = torch.stack([terms.columns(x[:, slice(*cut)]) for terms, cut in zip(found, cuts, strict=True)])
        for terms, cut in zip(found, cuts, strict=True):
            whole = terms.losses(parts)
            terms.gradient(x[:, slice(*cut)], whole.whole, terms.reduced(whole), None, True)


def reach(device: str = "cuda") -> None:
    """Calls everything, and says what is done."""
    start = time.perf_counter()
    for part in (reach_linear, reach_attention, reach_softmax, reach_cross_entropy, reach_distributed):
        part(device)
        if device == "cuda":
            torch.cuda.synchronize()
            print(f"{part.__name__}: {time.perf_counter() - start:.0f} s", flush=True)


def entries() -> set[str]:
    """file:entry of every kernel of the operations, as their sources have them."""
    import online_softmax

    package = Path(online_softmax.__file__).parent
    found = set()
    for path in sorted(path for folder in ("ops", "distributed") for path in (package / folder).rglob("*.cu")):
        for text in path.read_text(encoding="utf-8").split('extern "C" __global__')[1:]:
            names = re.findall(r"(\w+)\s*\(", text.split("{")[0])
            entry = next(name for name in names if name not in ("__launch_bounds__", "sizeof"))
            found.add(f"{path.relative_to(package).as_posix()}:{entry}")
    return found


def rehearse(device: str) -> None:
    """Prints what reach() loads, one entry a line, with kernels that do nothing; on a GPU compiles it all then."""
    from rehearsal import without_kernels

    found = without_kernels()
    # What no kernel fills must not be an index out of range.
    torch.empty, torch.empty_like = torch.zeros, torch.zeros_like
    reach(device)
    print(*sorted({f"{source.file}:{source.entry}" for source in found}), sep="\n")
    if device == "cuda":
        from prebuild import compile_all

        from online_softmax._cuda.limits import device_limits

        compile_all(found, device_limits(0).arch)


def run_tool(tool: str, limit_s: float) -> bool:
    """Prints one line about the tool's findings, more if there are any; whether they are none."""
    # What libraries ask the driver for on trial is no error of a kernel.
    options = ["--tool", tool, "--error-exitcode", "9", "--report-api-errors", "no"]
    command = ["compute-sanitizer", *options, sys.executable, __file__, "--reach"]
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        print(f"{tool}: not done after {limit_s:.0f} s", (error.stdout or b"").decode()[-2000:], sep="\n", flush=True)
        return False
    spent = f"{time.perf_counter() - start:.0f} s"
    summary = [line.strip("= ") for line in done.stdout.splitlines() if "SUMMARY" in line]
    if done.returncode == 0 and summary and "every kernel ran" in done.stdout:
        print(f"{tool}: {'; '.join(summary)} ({spent})", flush=True)
        return True
    places = Counter(re.findall(r"(?:access|Invalid|at) (?:at )?(\w+\+0x\w+)", done.stdout))
    print("\n".join([*done.stdout.splitlines()[:60], *done.stderr.splitlines()[-20:]]))
    print(*(f"{count} x {place}" for place, count in places.most_common()), sep="\n")
    print(f"{tool}: FAILED, exit status {done.returncode}; {'; '.join(summary) or 'no summary'} ({spent})", flush=True)
    return False


def main(limit_s: float) -> int:
    """The number of tools that found something or could not run."""
    if shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer is not on the path: it comes with the CUDA toolkit")
        return 1
    listed = subprocess.run([sys.executable, __file__, "--rehearse"], capture_output=True, text=True, check=True).stdout
    every, reached = entries(), set(listed.split())
    print(
        f"kernels: {len(every & reached)} of {len(every)}", *(f"  not reached here: {name}" for name in every - reached)
    )
    with ThreadPoolExecutor(len(TOOLS)) as pool:
        clean = list(pool.map(lambda tool: run_tool(tool, limit_s), TOOLS))
    return clean.count(False)


if __name__ == "__main__":
    if "--rehearse" in sys.argv:
        rehearse("cuda")
    elif "--reach" in sys.argv:
        reach()
        torch.cuda.synchronize()
        print("every kernel ran")
    else:
        sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else LIMIT_S))
