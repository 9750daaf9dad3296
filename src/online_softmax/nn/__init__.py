"""torch.nn's softmax and loss modules, computed online.  Importing this imports torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._arguments import flag, lengths
from .._arrays import result_dtype
from .._dispatch import check_impl
from ..ops.cross_entropy import cross_entropy
from ..ops.cross_entropy.arguments import make_options
from ..ops.linear_cross_entropy import linear_cross_entropy
from ..ops.linear_cross_entropy.arguments import check_chunks
from . import functional

__all__ = ["CrossEntropyLoss", "LinearCrossEntropyLoss", "LogSoftmax", "Softmax", "functional"]


class Softmax(torch.nn.Softmax):
    """torch.nn.Softmax(dim): softmax of a tensor of any shape along dim; same shape and dtype."""

    def forward(self, input: Tensor) -> Tensor:
        """Probabilities; the sum along dim is 1."""
        return functional.softmax(input, self.dim, _stacklevel=6)


class LogSoftmax(torch.nn.LogSoftmax):
    """torch.nn.LogSoftmax(dim): log-probabilities (nats) of a tensor along dim; same shape and dtype."""

    def forward(self, input: Tensor) -> Tensor:
        """Log-probabilities, in nats."""
        return functional.log_softmax(input, self.dim, _stacklevel=6)


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss with its arguments, and the further options of `online_softmax.cross_entropy`.

    Parameters
    ----------
    weight, size_average, ignore_index, reduce, reduction, label_smoothing
        As torch's; `weight` is a buffer of shape (C,).
    scale, softcap, z_loss, inplace, return_aux, impl
        Keyword only; as in `online_softmax.cross_entropy`, which also says what is returned and raised.

    Examples
    --------
    >>> import torch, online_softmax.nn
    >>> loss = online_softmax.nn.CrossEntropyLoss(label_smoothing=0.1)
    >>> loss(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3863)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        scale: float = 1.0,
        softcap: float | None = None,
        z_loss: float = 0.0,
        inplace: bool = False,
        return_aux: bool = False,
        impl: str = "auto",
    ) -> None:
        _check(weight, impl, inplace=inplace, return_aux=return_aux)
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        make_options(ignore_index, self.reduction, label_smoothing, scale, softcap, z_loss)
        self.options: dict[str, Any] = {
            "scale": scale,
            "softcap": softcap,
            "z_loss": z_loss,
            "inplace": inplace,
            "return_aux": return_aux,
            "impl": impl,
        }

    def forward(self, input: Tensor, target: Tensor, num_items: Any = None) -> Any:
        """The loss of logits (C,), (N, C) or (N, C, d1, …); `num_items` replaces what "mean" divides by."""
        return cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            num_items=num_items,
            **self.options,
        )


class LinearCrossEntropyLoss(torch.nn.Module):
    """A model's last linear layer and its loss in one: logits of the whole batch never exist.

    The layer is the attribute `linear`, a torch.nn.Linear: for logits call it, to tie it to an embedding assign
    `loss.linear.weight = embedding.weight`. Arguments and state are those of torch.nn.LinearCrossEntropyLoss.

    Parameters
    ----------
    in_features, num_classes : int
        Sizes H and V of the layer.
    bias, device, dtype
        As in torch.nn.Linear, but without a bias unless asked for.
    reduction, weight, ignore_index, label_smoothing
        As in `CrossEntropyLoss`.
    scale, softcap, z_loss, chunk_rows, memory, return_aux, impl
        As in `online_softmax.linear_cross_entropy`, which also says what is returned and raised.

    Examples
    --------
    >>> import torch, online_softmax.nn
    >>> loss = online_softmax.nn.LinearCrossEntropyLoss(8, 4)
    >>> loss(torch.zeros(2, 8), torch.tensor([0, 3])).item()
    1.3862943649291992
    """

    weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        scale: float = 1.0,
        softcap: float | None = None,
        z_loss: float = 0.0,
        chunk_rows: int | None = None,
        memory: str = "fast",
        return_aux: bool = False,
        impl: str = "auto",
    ) -> None:
        _check(weight, impl, bias=bias, return_aux=return_aux)
        check_chunks(chunk_rows, memory)
        for name, size in (("in_features", in_features), ("num_classes", num_classes)):
            lengths(name, size, (size,), "an int from 0 on")
        dtype = None if dtype is None else result_dtype(dtype, torch.empty(0, device="cpu"))
        super().__init__()
        make_options(ignore_index, reduction, label_smoothing, scale, softcap, z_loss)
        self.linear = torch.nn.Linear(in_features, num_classes, bias, device, dtype)
        self.register_buffer("weight", weight)
        self.options: dict[str, Any] = {
            "reduction": reduction,
            "ignore_index": ignore_index,
            "label_smoothing": label_smoothing,
            "scale": scale,
            "softcap": softcap,
            "z_loss": z_loss,
            "chunk_rows": chunk_rows,
            "memory": memory,
            "return_aux": return_aux,
            "impl": impl,
        }

    def forward(self, input: Tensor, target: Tensor, num_items: Any = None) -> Any:
        """The loss of features (H,) or (…, H); `num_items` replaces what "mean" divides by."""
        return linear_cross_entropy(
            input,
            self.linear.weight,
            target,
            linear_bias=self.linear.bias,
            weight=self.weight,
            num_items=num_items,
            **self.options,
        )

    def extra_repr(self) -> str:
        """The options that are not the default ones."""
        usual = {"reduction": "mean", "ignore_index": -100, "label_smoothing": 0.0, "scale": 1.0, "softcap": None}
        usual |= {"z_loss": 0.0, "chunk_rows": None, "memory": "fast", "return_aux": False, "impl": "auto"}
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items() if value != usual[name])


def _check(weight: Any, impl: str, **flags: Any) -> None:
    """What torch would refuse in words of its own, or only the first call would."""
    if weight is not None and not isinstance(weight, Tensor):
        raise TypeError(f"weight is a {type(weight).__name__}; wanted a tensor of shape (C,) or None")
    check_impl(impl)
    for name, value in flags.items():
        flag(name, value)
