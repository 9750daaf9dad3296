"""Launches of the row kernels of cross-entropy: in registers (cuda.cu), or split over blocks (split.cu)."""

from __future__ import annotations

from functools import lru_cache

import torch

from ..._cuda import geometry
from ..._cuda.geometry import Geometry
from ..._cuda.launch import Loaded, load_first_fitting
from .options import Options
from .switches import Switches, plan


@lru_cache(maxsize=4096)
def _kernels(
    device: int, dtype: torch.dtype, words: int, switches: Switches
) -> tuple[tuple[Loaded, ...], Geometry, bool]:
    loaded, chosen = load_first_fitting(
        device, lambda limits: plan(words, dtype, switches, limits), lambda found: found.sources(dtype, switches)
    )
    return loaded, chosen.shape, chosen.file == "split.cu"


def _at(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def run(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    options: Options,
    divisors: torch.Tensor,
    rows_out: torch.Tensor,
    gradient: torch.Tensor | None,
    incoming: tuple[int, int, int, int] = (0, 0, 0, 0),
    aux: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
) -> None:
    """Launch over all rows.

    `rows_out`: (3, M) for loss, lse and lse_low; `incoming`: grad_loss, its stride, grad_lse, its stride (pointers,
    elements; 0 for none); `aux`: z_loss, predicted, entropy.  Classes lie side by side in logits, gradient and target.
    """
    rows, classes = logits.shape
    size = logits.element_size()
    step = logits.stride(0)
    words = geometry.words_of(classes, size, logits.data_ptr() % 16 == 0 and step * size % 16 == 0)
    switches = Switches(
        target.dtype,
        weight is not None,
        options.label_smoothing != 0,
        options.scale != 1,
        options.softcap is not None,
        options.z_loss != 0,
        aux is not None,
        gradient is not None,
    )
    kernels, shape, split = _kernels(logits.get_device(), logits.dtype, words, switches)
    gradient_step = 0 if gradient is None else gradient.stride(0)
    labels = (target.data_ptr(), target.stride(0), _at(weight))
    factors = (float(options.scale), float(options.softcap or 1.0), float(options.label_smoothing))
    z_loss = float(options.z_loss)
    summary = (
        z_loss,
        z_loss if options.reduction == "none" else 0.0,
        divisors.data_ptr(),
        *incoming,
        *(rows_out.data_ptr() + i * rows_out.stride(0) * rows_out.element_size() for i in range(3)),
        *((0, 0, 0) if aux is None else (tensor.data_ptr() for tensor in aux)),
    )
    if not split:
        kernels[0](
            shape.grid(rows, kernels[0].resident),
            logits.data_ptr(),
            _at(gradient),
            rows,
            classes,
            step,
            gradient_step,
            *labels,
            options.ignore_index,
            *factors,
            *summary,
        )
        return
    add, merge, write = kernels
    pieces = shape.pieces(words)
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
        options.ignore_index,
        *factors,
        *summary,
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
