"""cross_entropy, cross_entropy_with_grad and check_targets as users call them."""

from __future__ import annotations

from typing import Any

from ..._arguments import answers_synonyms, flag, integer
from ..._arrays import Array, as_array, compiling, detached, is_integer, is_tensor, namespace
from ..._dispatch import device_type, implementation
from .arguments import Prepared, as_they_are, check_range, class_indices, fitting_target, make_options, prepare
from .options import Aux, Forward, Options, Packed


@answers_synonyms
def cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    num_items: Any = None,
    scale: float = 1.0,
    softcap: float | None = None,
    z_loss: float = 0.0,
    inplace: bool = False,
    return_aux: bool = False,
    impl: str = "auto",
) -> Any:
    """Cross-entropy of logits against class indices or probabilities; for tensors with its gradient from the same pass.

    Accepts what `torch.nn.functional.cross_entropy` accepts and gives its values and gradients, except that losses of
    fp16 and bf16 logits are fp32 (torch rounds them to the logits' dtype).

    Parameters
    ----------
    input : array or tensor, (C,), (N, C) or (N, C, d1, …)
        Logits. fp16, bf16 and fp32 are computed in fp32, fp64 in fp64. Never modified unless `inplace`.
    target : int array, (), (N,) or (N, d1, …); or floating, shape of input
        Class indices from 0 to C − 1 or `ignore_index`; or class probabilities.
    weight : array (C,), optional
        Factor of each class. Treated as a constant: no gradient flows into it.
    ignore_index : int
        Rows with this target add nothing; their gradient is exactly 0, even if they hold NaN.
    reduction : {"mean", "sum", "none"}
        "mean" divides by the kept rows' summed target weights (indices) or by the number of rows (probabilities).
        Where that is 0 it is NaN, as is the gradient of kept rows; with nothing kept every gradient is 0.
    label_smoothing : float in [0, 1]
        Share of the target spread evenly over all classes.
    num_items : number or 0-d array, optional
        What "mean" divides by instead: the items of all micro-batches, in gradient accumulation. Positive, a
        constant; in a tensor on a GPU it is not checked.
    scale, softcap : float, float or None
        The logits become scale · logits, then softcap · tanh(· / softcap). Normal numbers, as their reciprocals, of the
        dtype that is computed in.
    z_loss : float
        Adds z_loss · lse² a kept row, never class-weighted; "mean" divides it by the number of kept rows.
    inplace : bool
        The gradient takes the memory of `input`, whose values are lost: until backward has run, nothing may read or
        write there, another loss of the same rows included, which no error tells. Needs a tensor that autograd
        records, not a leaf, with the classes last in memory; a second backward raises.
    return_aux : bool
        Return (loss, Aux(lse, z_loss, predicted, entropy)), per row, from the same pass; lse is differentiable.
    impl : {"auto", "reference", "cpu", "cuda"}
        Which implementation runs; a named one runs or raises.

    Returns
    -------
    array
        Loss in nats, 0-d or (reduction="none") one number a row; fp32, or fp64 for fp64 logits. NaN for a row that
        holds NaN or +inf or nothing but −inf; +inf where a logit of −inf has target mass.

    Raises
    ------
    TypeError, ValueError
        If a shape, dtype, device or option does not fit.
    IndexError
        On the CPU, for a target outside [0, C) that is not `ignore_index`. On a GPU, where checking would stall the
        device, such a row's loss and gradient are NaN; `check_targets` checks on demand.

    Examples
    --------
    >>> import numpy as np, online_softmax as osm
    >>> round(float(osm.cross_entropy(np.array([[2.0, 0.0, 0.0]]), np.array([0]))), 6)
    0.239545

    Source: Milakov & Gimelshein 2018 (arXiv:1805.02867) for the normaliser; torch.nn.CrossEntropyLoss for the options.
    """
    options = make_options(ignore_index, reduction, label_smoothing, scale, softcap, z_loss, input)
    if weight is num_items is None and inplace is return_aux is False and _torch_op is not None:
        loss = _torch_op.loss_of_rows(input, target, options, impl)
        if loss is not None:
            return loss
    inplace, return_aux = flag("inplace", inplace), flag("return_aux", return_aux)
    ready = _prepared(input, target, weight, num_items, options)
    if is_tensor(ready.logits):
        return _answer(_tensors().cross_entropy(ready, input, inplace, return_aux, impl), ready, return_aux)
    if inplace:
        raise ValueError("inplace=True needs a tensor that autograd records; for arrays use cross_entropy_with_grad")
    check_range(ready.target, ready.logits.shape[1], ignore_index, ready.shape)
    module = implementation("cross_entropy", ready.logits, impl)
    result = module.forward(ready.logits, ready.target, ready.weight, ready.num_items, options, aux=return_aux)
    return _answer(result, ready, return_aux)


@answers_synonyms
def cross_entropy_with_grad(
    input: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    num_items: Any = None,
    scale: float = 1.0,
    softcap: float | None = None,
    z_loss: float = 0.0,
    return_aux: bool = False,
    impl: str = "auto",
) -> tuple[Any, Array]:
    """Cross-entropy and its gradient with respect to the logits, without autograd, for arrays and tensors.

    Parameters and errors are those of `cross_entropy`. Nothing is recorded by autograd.

    Returns
    -------
    (loss, gradient), or ((loss, aux), gradient) with return_aux
        gradient has the shape and dtype of input; for reduction="none" it is that of the summed loss.

    Examples
    --------
    >>> import numpy as np, online_softmax as osm
    >>> loss, gradient = osm.cross_entropy_with_grad(np.array([[0.0, 0.0]]), np.array([1]))
    >>> gradient
    array([[ 0.5, -0.5]])
    """
    options = make_options(ignore_index, reduction, label_smoothing, scale, softcap, z_loss, input)
    return_aux = flag("return_aux", return_aux)
    ready = _prepared(detached(input), detached(target), detached(weight), num_items, options)
    logits, target, weight = ready.logits, ready.target, ready.weight
    module: Any = _tensors().operators(logits, impl) if is_tensor(logits) else None
    if module is None:
        if device_type(logits) == "cpu":
            check_range(target, logits.shape[1], ignore_index, ready.shape)
        module = implementation("cross_entropy", logits, impl)
    # A gradient of the mean or sum comes from the loss's own pass; one of unreduced losses needs a second.
    made = True if reduction != "none" else None
    result = module.forward(logits, target, weight, ready.num_items, options, aux=return_aux, gradient=made)
    gradient = result.gradient
    if reduction == "none":
        ones = namespace(logits).ones_like(result.lse)
        gradient = module.backward(logits, target, weight, *result.saved, options, ones, None)
    return _answer(result, ready, return_aux), ready.to_input(gradient)


_torch_op: Any = None


def _tensors() -> Any:
    """The module for tensors, which imports torch; the statement would cost a small call half a microsecond.

    Not `functools.cache`, of which torch.compile warns.
    """
    global _torch_op
    if _torch_op is None:
        from . import torch_op

        _torch_op = torch_op
    return _torch_op


def _prepared(input: Any, target: Any, weight: Any, num_items: Any, options: Options) -> Prepared:
    """The arguments in the form of implementations; the commonest ones are that already."""
    if weight is num_items is None and is_tensor(input) and _tensors().are_rows_and_indices(input, target):
        return as_they_are(input, target, options)
    return prepare(input, target, weight, num_items, options)


def _answer(result: Forward | Packed, ready: Prepared, return_aux: bool) -> Any:
    """The loss in its public shape, with aux if asked for."""
    loss = ready.to_rows(result.loss) if ready.options.reduction == "none" else result.loss
    if type(loss).__module__ == "numpy" and loss.ndim == 0:
        loss = loss[()]
    if not return_aux:
        return loss
    rows = (result.lse, result.z_loss, result.predicted, result.entropy)
    return loss, Aux(*(ready.to_rows(row) for row in rows))


@answers_synonyms
def check_targets(input: Array, target: Array, *, ignore_index: int = -100) -> None:
    """Raise IndexError, naming the row and the value, if a class index is neither in [0, C) nor `ignore_index`.

    For GPU tensors, whose targets `cross_entropy` does not check because that would stall the device: this does, and
    waits for the device. `input` is (C,), (N, C) or (N, C, d1, …), `target` the class indices; probabilities pass.
    """
    if compiling():
        raise NotImplementedError("check_targets reads what targets hold, which no graph can: call it in eager mode")
    ignore_index = integer("ignore_index", ignore_index)
    input = as_array(input, "input")
    target = fitting_target(target, input)
    classes = input.shape[0 if input.ndim == 1 else 1]
    if is_integer(target.dtype):
        target = class_indices(target, ignore_index, read=True)
    check_range(namespace(target).reshape(target, (-1,)), classes, ignore_index, tuple(target.shape))
