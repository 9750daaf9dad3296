"""Compile what the GPU tests and the benchmark will need, all processors at once: one by one it would take minutes."""

from __future__ import annotations

import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import torch
from cases import DEVICE_LENGTHS, DTYPES, LONG, lengths

from online_softmax._cuda import geometry
from online_softmax._cuda.compile import Source, cubin
from online_softmax._cuda.limits import Limits, device_limits

_, BF16, F32, F64 = DTYPES


def _words(length: int, dtype: torch.dtype) -> set[int]:
    """With rows on 16 bytes, and off them."""
    return {geometry.words_of(length, dtype.itemsize, aligned) for aligned in (True, False)}


def softmax_sources(limits: Limits) -> set[Source]:
    from online_softmax.ops.softmax import plans

    found: set[Source] = set()
    for dtype in DTYPES:
        every = [*lengths(dtype), *LONG["shared memory to the brim, then split"]]
        words = set().union(*(_words(length, dtype) for length in every))
        for operation, count in itertools.product(range(3), words):
            found.update(plans.forward(operation, count, dtype.itemsize, limits).sources(operation, dtype, dtype))
        if dtype.itemsize == 2:  # as the public logsumexp asks for it
            for count in words:
                found.update(plans.forward(2, count, dtype.itemsize, limits).sources(2, dtype, F32))
        for operation, count in itertools.product(range(2), words):
            found.update(plans.backward(count, dtype.itemsize, limits).sources(operation, dtype, dtype))
        for count in words:
            found.update(plans.logsumexp_backward(count, dtype.itemsize).sources(2, dtype, dtype))
        for operation, lanes in itertools.product(range(3), (1, 4, 8, 32)):
            found.add(plans.columns(operation, False, dtype, dtype, lanes))
            found.add(plans.columns(operation % 2, True, dtype, dtype, lanes))
        for other, length in itertools.product(DTYPES, (17, 1000, 40001)):
            for count in _words(length, dtype):
                found.update(plans.forward(0, count, dtype.itemsize, limits).sources(0, dtype, other))
    return found


def cross_entropy_sources(limits: Limits) -> set[Source]:
    import cross_entropy_cases as tests

    from online_softmax.ops.cross_entropy.switches import Switches, backward, plan

    found: set[Source] = set()
    for dtype, classes in tests.CASES:
        targets = [torch.int64]
        if classes in tests.WITH_PROBABILITIES:
            targets.append(F64 if dtype == F64 else F32)
        wanted = {
            Switches(
                target,
                weighted,
                options.label_smoothing != 0,
                options.scale != 1,
                options.softcap is not None,
                options.z_loss != 0,
                aux and classes in tests.WITH_AUX and target == torch.int64,
                gradient,
            )
            for options, weighted in tests.choices(dtype)
            for target in targets
            for aux, gradient in ((True, True), (False, True), (False, False))
        }
        wanted |= {Switches(torch.int32, *([False] * 6), gradient) for gradient in (True, False)}
        aligned = classes * dtype.itemsize % 16 == 0
        for switches in wanted:
            words = geometry.words_of(classes, dtype.itemsize, aligned and switches.target != torch.int32)
            found.update(plan(words, dtype, switches, limits).sources(dtype, switches))
            if switches.gradient and not switches.aux:
                found.update(backward(words).sources(dtype, switches))
    return found


def device_sources(limits: Limits) -> set[Source]:
    """What most of test_devices.py needs: a row of every regime."""
    from online_softmax.ops.cross_entropy.switches import Switches, backward, plan
    from online_softmax.ops.softmax import plans

    found: set[Source] = set()
    for length in DEVICE_LENGTHS:
        words = geometry.words_of(length, F32.itemsize, length * F32.itemsize % 16 == 0)
        for operation in range(3):
            found.update(plans.forward(operation, words, F32.itemsize, limits).sources(operation, F32, F32))
        for operation in range(2):
            found.update(plans.backward(words, F32.itemsize, limits).sources(operation, F32, F32))
        words = geometry.words_of(length, BF16.itemsize, length * BF16.itemsize % 16 == 0)
        for gradient in (True, False):
            switches = Switches(torch.int64, True, True, False, False, True, True, gradient)
            found.update(plan(words, BF16, switches, limits).sources(BF16, switches))
        found.update(backward(words).sources(BF16, switches._replace(aux=False, gradient=True)))
    return found


def bench_sources(limits: Limits) -> set[Source]:
    from online_softmax.bench.workload import cuda_workloads
    from online_softmax.ops.cross_entropy.switches import Switches, backward, plan
    from online_softmax.ops.softmax import plans

    names = ("softmax", "log_softmax", "logsumexp")
    found: set[Source] = set()
    for work in cuda_workloads():
        dtype = getattr(torch, work.dtype)
        words = geometry.words_of(work.columns, dtype.itemsize, True)
        if work.operation == "cross_entropy":
            on = work.variant == "all options"
            for gradient in (True, False):
                switches = Switches(torch.int64, on, on, False, on, on, False, gradient)
                found.update(plan(words, dtype, switches, limits).sources(dtype, switches))
            found.update(backward(words).sources(dtype, switches._replace(gradient=True)))
            continue
        operation = names.index(work.function)
        out = F32 if work.function == "logsumexp" else dtype
        found.update(plans.forward(operation, words, dtype.itemsize, limits).sources(operation, dtype, out))
        if work.operation != work.function:
            found.update(plans.backward(words, dtype.itemsize, limits).sources(operation, dtype, dtype))
    return found


def _compile(job: tuple[Source, str]) -> str | None:
    try:
        cubin(*job)
    except Exception as error:
        return f"{job[0]}: {error}"[:2000]
    return None


def compile_all(sources: set[Source], arch: str) -> int:
    """Into the cache on disk; returns how many."""
    sources = set(
        {(source.file, source.macros): source for source in sources}.values()
    )  # all entry points of a file at once
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=context) as pool:
        failures = [text for text in pool.map(_compile, [(source, arch) for source in sources], chunksize=4) if text]
    if failures:
        raise RuntimeError("\n".join(failures[:3]))
    return len(sources)


if __name__ == "__main__":
    here = device_limits(0)
    everything = softmax_sources(here) | cross_entropy_sources(here) | bench_sources(here)
    print(compile_all(everything, here.arch), "kernels")
