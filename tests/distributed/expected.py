"""Comparisons that the cases share, and what they count."""

from __future__ import annotations

import torch
from torch import Tensor


def within_ulps(got: Tensor, want: Tensor, ulps: float, size: Tensor | float = 0.0) -> None:
    """got equals want to so many units in the last place of the larger of |want| and size."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    eps = torch.finfo(want.dtype).eps
    odd = ~torch.isfinite(want)
    assert torch.equal(got[odd].nan_to_num(7.0), want[odd].nan_to_num(7.0))
    assert torch.equal(torch.isnan(got), torch.isnan(want))
    unit = eps * torch.maximum(want.abs(), torch.as_tensor(size, dtype=want.dtype))
    error = ((got - want).abs() / unit.clamp(min=torch.finfo(want.dtype).tiny))[~odd]
    assert error.numel() == 0 or error.max() <= ulps, f"{error.max().item():.3g} ulps"


def close_gradient(got: Tensor, want: Tensor, whole: Tensor | None = None) -> None:
    """got equals want, a part of `whole`, to four eps of the whole tensor's largest value; NaN in the same places."""
    assert got.shape == want.shape
    assert torch.equal(torch.isnan(got), torch.isnan(want))
    eps = torch.finfo(want.dtype).eps
    got, want, whole = (x.double().nan_to_num(0.0) for x in (got, want, want if whole is None else whole))
    limit = 4 * eps * (whole.abs().max().item() if whole.numel() else 0.0)
    assert want.numel() == 0 or (got - want).abs().max().item() <= limit, f"{(got - want).abs().max().item()} > {limit}"


def collectives(profile: torch.profiler.profile) -> list[str]:
    """torch's names of the collectives that were asked for; a GPU's copies of these names are left out."""
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CPU]
    return [event.name for event in events if event.name.startswith("c10d::")]
