"""Launches of the row kernels of cross-entropy: forward in shared memory (staged.cu), in registers (cuda.cu) or split
over blocks (split.cu), and the gradient from a given log-sum-exp (backward.cu)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from cuda.core import Stream

from ..._cuda import geometry
from ..._cuda.geometry import Geometry
from ..._cuda.launch import Loaded, launch_on, load, load_first_fitting
from ..._cuda.ready import Ready, find, keep
from . import numbers
from .options import Options
from .switches import MASS_THREADS, Plan, Switches, plan
from .switches import backward as plan_backward

Again = Callable[[Stream, int, int, int, int, int, int, int, int, int], None]
"""A launch on other pointers: stream, logits, gradient or 0, target, weight or 0, divisors, the rows' losses, the bytes
from there to lse, and on to lse_low, and what has been weighed: an address or 0, and the shift."""


@lru_cache(maxsize=4096)
def _kernels(device: int, dtype: torch.dtype, words: int, switches: Switches) -> tuple[tuple[Loaded, ...], Plan]:
    return load_first_fitting(
        device,
        lambda limits: plan(words, dtype, switches, limits),
        lambda found: found.sources(dtype, switches),
        early=lambda found: found.file != "split.cu",  # behind count_rows, which is not
    )


@lru_cache(maxsize=4096)
def _backward_kernels(
    device: int, dtype: torch.dtype, words: int, switches: Switches
) -> tuple[Loaded, Loaded, Geometry]:
    chosen = plan_backward(words)
    gradient, masses = chosen.sources(dtype, switches)
    return load(device, gradient, chosen.shape.threads), load(device, masses, MASS_THREADS), chosen.shape


def switches_of(
    target: torch.Tensor, weight: torch.Tensor | None, options: Options, aux: bool, gradient: bool
) -> Switches:
    """What is compiled in for a call with these arguments."""
    return Switches(
        target.dtype,
        weight is not None,
        options.label_smoothing != 0,
        options.scale != 1,
        options.softcap is not None,
        options.z_loss != 0,
        aux,
        gradient,
    )


def words_of(logits: torch.Tensor) -> int:
    """16-byte words of a row."""
    size = logits.element_size()
    aligned = logits.data_ptr() % 16 == 0 and logits.stride(0) * size % 16 == 0
    return geometry.words_of(logits.shape[1], size, aligned)


def _at(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _again(kernel: Loaded, grid: int, sizes: tuple[float, ...], step: int, given: tuple[float, ...]) -> Again:
    ready = kernel.ready(grid)

    def again(
        stream: Stream,
        logits: int,
        gradient: int,
        target: int,
        weight: int,
        divisors: int,
        rows_out: int,
        plane: int,
        weighed: int,
        shift: int,
    ) -> None:
        losses = (rows_out, rows_out + plane, rows_out + 2 * plane)
        more = (weighed, shift, 0)
        launch_on(stream, *ready, logits, gradient, *sizes, target, step, weight, *given, divisors, *losses, *more)

    return again


def run(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    options: Options,
    divisors: torch.Tensor,
    rows_out: torch.Tensor,
    gradient: torch.Tensor | None,
    aux: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
    weighed: tuple[int, int, int] | None = None,
) -> Again | None:
    """Launch over all rows; the result does so again, for a call like this one without aux, if one launch is all.

    `rows_out`: (3, M) for loss, lse and lse_low; `aux`: z_loss, predicted, entropy; `weighed`: where the class weights
    are, where what count_rows has weighed, and the shift.  Classes lie side by side in logits, gradient and target.
    """
    weights, sums, shift = weighed or (_at(weight), 0, 0)
    labels = (target.data_ptr(), target.stride(0), weights)
    first, plane = rows_out.data_ptr(), rows_out.stride(0) * rows_out.element_size()
    results = (divisors.data_ptr(), first, first + plane, first + 2 * plane)
    more = (sums, shift, 0) if aux is None else (aux[0].data_ptr(), aux[1].data_ptr(), aux[2].data_ptr())
    gradient_step = 0 if gradient is None else gradient.stride(0)
    layout = (logits.shape, logits.stride(), logits.data_ptr() % 16, gradient_step)
    compiled_in = (target.dtype, weight is None, aux is None, gradient is None)
    key = ("cross_entropy", logits.get_device(), logits.dtype, layout, compiled_in, options)
    ready = find(key)
    if ready is not None:
        sizes, given = ready.rest[:4], ready.rest[4:]
        ready.kernel(ready.grid, logits.data_ptr(), _at(gradient), *sizes, *labels, *given, *results, *more)
        return _again(ready.kernel, ready.grid, sizes, target.stride(0), given) if aux is None else None
    rows, classes = logits.shape
    step = logits.stride(0)
    words = words_of(logits)
    switches = switches_of(target, weight, options, aux is not None, gradient is not None)
    kernels, chosen = _kernels(logits.get_device(), logits.dtype, words, switches)
    given = chosen.given(options, classes)
    if chosen.file != "split.cu":
        sizes = (rows, classes, step, gradient_step)
        grid = chosen.shape.grid(rows, kernels[0].resident)
        kernels[0](grid, logits.data_ptr(), _at(gradient), *sizes, *labels, *given, *results, *more)
        keep(key, Ready(kernels[0], grid, (*sizes, *given)))
        return _again(kernels[0], grid, sizes, target.stride(0), given) if aux is None else None
    add, merge, write = kernels
    factors = numbers.factors(options)
    pieces = chosen.shape.pieces(words)
    records = torch.empty((rows, pieces, switches.record()), dtype=rows_out.dtype, device=rows_out.device)
    row_factors = torch.empty((rows, 4), dtype=rows_out.dtype, device=rows_out.device)
    add(rows * pieces, logits.data_ptr(), classes, pieces, step, *labels, *factors, records.data_ptr())
    merge(
        rows,
        records.data_ptr(),
        pieces,
        logits.data_ptr(),
        classes,
        step,
        *labels,
        *given,
        *results,
        *more,
        row_factors.data_ptr(),
    )
    if gradient is not None:
        write(
            rows * pieces,
            logits.data_ptr(),
            gradient.data_ptr(),
            classes,
            pieces,
            step,
            gradient_step,
            *labels,
            *factors,
            row_factors.data_ptr(),
        )
    return None


def backward(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    lse: torch.Tensor,
    lse_low: torch.Tensor,
    divisors: torch.Tensor,
    options: Options,
    grad_loss: torch.Tensor,
    grad_lse: torch.Tensor | None,
    gradient: torch.Tensor,
    of: tuple[int, int] | None = None,
) -> None:
    """Launch over all rows.  Classes lie side by side in logits, gradient and target; lse and lse_low are contiguous,
    and they and the incoming gradients are in the compute dtype.  `of`: the first of these classes, and how many there
    are, if they are a part of those that labels and weight are of."""
    rows, classes = logits.shape
    first_class, all_classes = of or (0, classes)
    words = words_of(logits)
    switches = switches_of(target, weight, options, aux=False, gradient=True)
    device = logits.get_device()
    write, add, shape = _backward_kernels(device, logits.dtype, words, switches)
    labels = (target.data_ptr(), target.stride(0), _at(weight))
    factors = numbers.factors(options)
    masses, mass_stride = None, 0  # of all classes, unless that is 1 or on the label's alone
    if target.is_floating_point() or (switches.weighted and switches.smoothing):
        mass_stride = int(target.is_floating_point() and target.stride(0) != 0)
        masses = torch.empty(rows if mass_stride else 1, dtype=lse.dtype, device=logits.device)
        add(masses.shape[0], *labels, all_classes, factors[2], masses.data_ptr())
    pieces = shape.pieces(words)
    write(
        shape.grid(rows, 0) * pieces,
        logits.data_ptr(),
        gradient.data_ptr(),
        rows,
        classes,
        pieces,
        logits.stride(0),
        gradient.stride(0),
        *labels,
        options.ignore_index,
        *factors,
        float(options.z_loss),
        divisors.data_ptr(),
        lse.data_ptr(),
        lse_low.data_ptr(),
        grad_loss.data_ptr(),
        grad_loss.stride(0) if grad_loss.ndim else 0,
        _at(grad_lse),
        0 if grad_lse is None else grad_lse.stride(0),
        _at(masses),
        mass_stride,
        first_class,
        all_classes,
    )
