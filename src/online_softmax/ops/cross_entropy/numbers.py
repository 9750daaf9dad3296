"""What options become on their way into the kernels."""

from __future__ import annotations

import ctypes

from .options import Options

# tanh(u) = u + u^3 (a polynomial in u^2) for |u| <= NEAR: the least largest relative error, half of a unit in the last
# place of fp32 (0.75, five terms) and a quarter (0.5, four terms).
SERIES = {
    4: (0.5, (-0.333331435918808, 0.13325878977775574, -0.05304549261927605, 0.01724148727953434)),
    5: (
        0.75,
        (-0.3333306908607483, 0.13326521217823029, -0.0533902570605278, 0.019664909690618515, -0.004769487772136927),
    ),
}
_SOFTCAPS = 1e-3, 3e3  # beyond these the terms' powers of softcap leave the normal numbers of fp32


def factors(options: Options) -> tuple[float, float, float]:
    """scale, softcap and label smoothing, as kernels take them that compute in double too."""
    return float(options.scale), float(options.softcap or 1.0), float(options.label_smoothing)


def wide(options: Options) -> tuple[int | float, ...]:
    """For cuda.cu and split.cu."""
    return (options.ignore_index, *factors(options), float(options.z_loss), _reported_z(options))


def packed(options: Options, classes: int, terms: int) -> tuple[int, ...]:
    """For staged.cu, which computes in fp32: pairs of 32-bit numbers.  `terms` of the polynomial, 0 for none."""
    scale, softcap, smoothing = factors(options)
    near, series = SERIES.get(terms, (-1.0, ()))
    inverse = 1 / softcap
    square = inverse * inverse
    if not _SOFTCAPS[0] < softcap < _SOFTCAPS[1]:
        near, series = -1.0, ()
    powers = [term * square ** (k + 1) for k, term in enumerate(series)]
    powers += [0.0] * (5 - len(powers))
    return (
        options.ignore_index,
        _pair(scale, softcap),
        _pair(inverse, square),
        _pair(powers[0], powers[1]),
        _pair(powers[2], powers[3]),
        _pair(powers[4], near * softcap),
        _pair(smoothing / classes, 1 - smoothing),
        _pair(float(options.z_loss), _reported_z(options)),
    )


def _reported_z(options: Options) -> float:
    """z-loss as the row kernel adds it to the loss; where losses are summed, that is added with the sum."""
    return float(options.z_loss) if options.reduction == "none" else 0.0


def _pair(first: float, second: float) -> int:
    """Two fp32 numbers in the 64 bits of an integer argument; too large ones are infinite."""
    return int.from_bytes(bytes((ctypes.c_float * 2)(first, second)), "little", signed=True)
