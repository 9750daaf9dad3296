"""What options become on their way into the kernels."""

from __future__ import annotations

import ctypes
import math

from .options import Options

# tanh(u) = u + u^3 (a polynomial in u^2) for |u| <= _NEAR: the least largest relative error, a quarter of a unit in the
# last place of fp32.
_NEAR = 0.5
_SERIES = (-0.333331435918808, 0.13325878977775574, -0.05304549261927605, 0.01724148727953434)
_RATIOS = 1e-3, 3e3  # softcap / scale beyond these takes terms' powers of it from the normal numbers of fp32


def factors(options: Options) -> tuple[float, float, float]:
    """scale, softcap and label smoothing, as kernels take them that compute in double too."""
    return float(options.scale), float(options.softcap or 1.0), float(options.label_smoothing)


def wide(options: Options, classes: int) -> tuple[int | float, ...]:
    """For cuda.cu and split.cu."""
    return (options.ignore_index, *factors(options), float(options.z_loss), _reported_z(options))


def packed(options: Options, classes: int) -> tuple[int | float, ...]:
    """For staged.cu, which computes in fp32: pairs of 32-bit numbers."""
    scale, _, _ = factors(options)
    return (options.ignore_index, _pair(scale, 0.0), *_masses_and_z(options, classes))


def capped(options: Options, classes: int) -> tuple[int | float, ...]:
    """For softcap.cu on fp32 logits."""
    return _capped(options, classes, 1.0)


def capped_binary(options: Options, classes: int) -> tuple[int | float, ...]:
    """For softcap.cu on logits of 16 bits, which counts capped logits in units of ln 2."""
    return _capped(options, classes, math.log2(math.e))


def _capped(options: Options, classes: int, unit: float) -> tuple[int | float, ...]:
    scale, softcap, _ = factors(options)
    ratio, amplitude = scale / softcap, softcap * unit
    served = _RATIOS[0] * abs(scale) < softcap < _RATIOS[1] * abs(scale)
    terms = [unit * scale * term * ratio ** (2 * k + 2) if served else 0.0 for k, term in enumerate(_SERIES)]
    return (
        options.ignore_index,
        _pair(scale, amplitude),
        _pair(ratio, 1 / amplitude / amplitude),
        _pair(terms[0], terms[1]),
        _pair(terms[2], terms[3]),
        _pair(_NEAR / abs(ratio) if served else -1.0, unit * scale),
        *_masses_and_z(options, classes),
    )


def _masses_and_z(options: Options, classes: int) -> tuple[int, int]:
    smoothing = float(options.label_smoothing)
    return _pair(smoothing / classes, 1 - smoothing), _pair(float(options.z_loss), _reported_z(options))


def _reported_z(options: Options) -> float:
    """z-loss as the row kernel adds it to the loss; where losses are summed, that is added with the sum."""
    return float(options.z_loss) if options.reduction == "none" else 0.0


def _pair(first: float, second: float) -> int:
    """Two fp32 numbers in the 64 bits of an integer argument; too large ones are infinite."""
    return int.from_bytes(bytes((ctypes.c_float * 2)(first, second)), "little", signed=True)
