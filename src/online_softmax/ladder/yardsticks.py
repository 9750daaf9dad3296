"""What the ladder is measured against: the library's own kernels, and torch's."""

from __future__ import annotations

import importlib.util
from typing import Any

from .rung import Answer, Arrays, Rung, make


def yardsticks(compiled: bool = True) -> list[Rung]:
    """The library's softmax and cross-entropy, and torch's where torch is installed."""
    found = [
        make("softmax of this library", "1", _softmax),
        make("cross_entropy of this library", "1", _cross_entropy),
    ]
    # torch is measured, not vouched for: where it is wrong, the table says so.
    if importlib.util.find_spec("torch") is not None:
        found.append(make("torch.softmax", "", _torch_softmax, safe=False))
        if compiled:
            found.append(make("torch.compile(softmax)", "", _Compiled(), safe=False)._replace(optional=True))
        found.append(make("F.cross_entropy", "", _torch_cross_entropy, safe=False))
    return found


def _softmax(arrays: Arrays) -> Answer:
    import online_softmax

    return Answer(online_softmax.softmax(arrays.logits, out=arrays.result))


def _cross_entropy(arrays: Arrays) -> Answer:
    # The kernel below the public function, which always makes a fresh gradient: rungs write to an array that is there.
    from .._dispatch import implementation
    from ..ops.cross_entropy.options import Options

    kernel = implementation("cross_entropy", arrays.logits, "auto")
    made = kernel.forward(arrays.logits, arrays.target, None, None, Options(reduction="sum"), gradient=arrays.result)
    return Answer(made.gradient, made.loss)


def _torch_softmax(arrays: Arrays) -> Answer:
    import torch

    torch.softmax(_tensor(arrays.logits), -1, out=_tensor(arrays.result))
    return Answer(arrays.result)


def _softmax_of_last_axis(x: Any) -> Any:
    import torch

    return torch.softmax(x, -1)


class _Compiled:
    """Compiled on its first call, which is the one that is checked."""

    def __init__(self) -> None:
        self._function: Any = None

    def __call__(self, arrays: Arrays) -> Answer:
        import torch

        if self._function is None:
            self._function = torch.compile(_softmax_of_last_axis, dynamic=False)
        result = self._function(_tensor(arrays.logits))
        return Answer(result if arrays.logits is _tensor(arrays.logits) else result.numpy())


def _torch_cross_entropy(arrays: Arrays) -> Answer:
    import torch

    logits = _tensor(arrays.logits).detach().requires_grad_()
    loss = torch.nn.functional.cross_entropy(logits, _tensor(arrays.target), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, logits)
    if arrays.logits is _tensor(arrays.logits):
        return Answer(gradient, loss.detach())
    return Answer(gradient.numpy(), loss.detach().numpy())


def _tensor(array: Any) -> Any:
    import torch

    return array if isinstance(array, torch.Tensor) else torch.from_numpy(array)
