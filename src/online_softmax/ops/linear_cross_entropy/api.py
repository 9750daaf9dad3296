"""linear_cross_entropy and linear_cross_entropy_with_grads as users call them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arguments import answers_synonyms, flag
from ..._arrays import Array, is_tensor, namespace
from ..._dispatch import device_type, implementation
from ..cross_entropy.arguments import check_range, make_options
from ..cross_entropy.options import Aux, Forward
from . import compute
from .arguments import Prepared, prepare
from .problem import LinearCrossEntropyGrads, Problem, Wanted


@answers_synonyms
def linear_cross_entropy(
    input: Array,
    linear_weight: Array,
    target: Array,
    *,
    linear_bias: Array | None = None,
    weight: Array | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    num_items: Any = None,
    scale: float = 1.0,
    softcap: float | None = None,
    z_loss: float = 0.0,
    chunk_rows: int | None = None,
    memory: str = "fast",
    return_aux: bool = False,
    impl: str = "auto",
) -> Any:
    """cross_entropy(input @ linear_weight.T + linear_bias, target) without ever holding the batch's logits.

    Rows are taken in chunks, whose logits become their gradient in the pass that makes the loss. Of the gradients of
    input, weight and bias those that autograd asks for are made with the loss; the weight's is summed in fp32. For
    reduction="none", for fp16, for a gradient into `aux.lse` and in a second backward on the same graph, backward makes
    them from logits computed again.

    Parameters
    ----------
    input : array or tensor, (H,) or (…, H)
        Rows of features.
    linear_weight : array or tensor, (V, H)
        The last layer's weight, in input's dtype and on its device; not sharded. Under torch.autocast dtypes may
        differ, and products are made in autocast's.
    target : int array, shape of the batch; or floating, (…, V)
        Class indices from 0 to V − 1 or `ignore_index`; or class probabilities, as constants.
    linear_bias : array (V,), optional
        The last layer's bias.
    weight : array (V,), optional
        Factor of each class. Treated as a constant.
    ignore_index, reduction, label_smoothing, num_items, scale, softcap, z_loss, impl
        As in `cross_entropy`. On the CPU, ignored rows are left out of the products (not with return_aux); on a GPU,
        where counting them would stall the device, they get zero gradient: select rows beforehand if many are ignored.
    chunk_rows : int, optional
        Rows of logits held at a time; chosen from the shapes and the device if None. Changes rounding only. For
        memory="fast" alone.
    memory : {"fast", "least"}
        "fast" makes three matrix products, and holds logits and sums of no more than a chunk and an fp32 copy of the
        weight's gradient would take; on a GPU a chunk may take a 32nd of the device's memory. "least" takes the
        vocabulary in chunks, twice: four products less one chunk's, and no memory but one chunk of logits, kept until
        backward or the next such loss, and an fp32 copy of input. On a GPU it takes small chunks of rows instead, with
        three products, where these and an fp32 copy of linear_weight need no more; gradients then come with the loss.
    return_aux : bool
        Return (loss, Aux(lse, z_loss, predicted, entropy)), per row; lse is differentiable.

    Returns
    -------
    array
        Loss in nats, 0-d or (reduction="none") one number a row; fp32, or fp64 for fp64 arguments.

    Raises
    ------
    TypeError, ValueError
        If a shape, dtype, device or option does not fit.
    IndexError
        On the CPU, for a target outside [0, V) that is not `ignore_index`; on a GPU that row's loss is NaN, and with it
        every gradient that the row enters.
    RuntimeError
        In backward with create_graph=True: there is no second derivative.

    Examples
    --------
    >>> import torch, online_softmax as osm
    >>> hidden, head = torch.zeros(3, 8, requires_grad=True), torch.zeros(4, 8, requires_grad=True)
    >>> loss = osm.linear_cross_entropy(hidden, head, torch.tensor([0, 3, -100]))
    >>> loss.backward()
    >>> loss.item(), tuple(head.grad.shape)
    (1.3862943649291992, (4, 8))

    Source: Milakov & Gimelshein 2018 (arXiv:1805.02867) for the normaliser; torch.nn.functional for the arguments.
    """
    options = make_options(ignore_index, reduction, label_smoothing, scale, softcap, z_loss, input)
    return_aux = flag("return_aux", return_aux)
    ready = prepare(input, linear_weight, target, linear_bias, weight, num_items, options, chunk_rows, memory)
    if is_tensor(ready.input):
        from . import torch_op

        return _answer(torch_op.linear_cross_entropy(ready, return_aux, impl), ready, return_aux)
    return _answer(_of_arrays(ready, return_aux, None, impl), ready, return_aux)


@answers_synonyms
def linear_cross_entropy_with_grads(
    input: Array,
    linear_weight: Array,
    target: Array,
    *,
    linear_bias: Array | None = None,
    weight: Array | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    num_items: Any = None,
    scale: float = 1.0,
    softcap: float | None = None,
    z_loss: float = 0.0,
    chunk_rows: int | None = None,
    memory: str = "fast",
    return_aux: bool = False,
    impl: str = "auto",
) -> tuple[Any, LinearCrossEntropyGrads]:
    """linear_cross_entropy and its gradients, without autograd, for NumPy arrays and tensors.

    Parameters and errors are those of `linear_cross_entropy`. Nothing is recorded by autograd.

    Returns
    -------
    (loss, grads), or ((loss, aux), grads) with return_aux
        grads has the fields input, linear_weight and linear_bias (None without a bias), each with the shape and dtype
        of that argument; for reduction="none" they are those of the summed loss.

    Examples
    --------
    >>> import numpy as np, online_softmax as osm
    >>> loss, grads = osm.linear_cross_entropy_with_grads(np.ones((1, 2)), np.zeros((2, 2)), np.array([1]))
    >>> grads.linear_weight
    array([[ 0.5,  0.5],
           [-0.5, -0.5]])
    """
    options = make_options(ignore_index, reduction, label_smoothing, scale, softcap, z_loss, input)
    return_aux = flag("return_aux", return_aux)
    input, linear_weight, target, linear_bias, weight = map(
        _detached, (input, linear_weight, target, linear_bias, weight)
    )
    ready = prepare(input, linear_weight, target, linear_bias, weight, num_items, options, chunk_rows, memory)
    wanted = Wanted(True, True, linear_bias is not None)
    if is_tensor(ready.input):
        from . import torch_op

        result = torch_op.with_grads(ready, return_aux, wanted, impl)
    else:
        result = _of_arrays(ready, return_aux, wanted, impl)
    grads = result.gradient
    of_input = namespace(grads.input).reshape(grads.input, (*ready.shape, grads.input.shape[-1]))
    return _answer(result, ready, return_aux), grads._replace(input=of_input)


def _detached(x: Any) -> Any:
    return x.detach() if is_tensor(x) else x


def check(ready: Prepared) -> None:
    """IndexError for a class index out of range, on the CPU."""
    if device_type(ready.input) == "cpu":
        check_range(ready.target, ready.linear_weight.shape[0], ready.options.ignore_index, ready.shape)


@np.errstate(all="ignore")
def _of_arrays(ready: Prepared, aux: bool, wanted: Wanted | None, impl: str) -> Forward:
    """The computation on NumPy arrays, brought to the dtype that products are made in."""
    check(ready)
    given = ready.input, ready.linear_weight, ready.linear_bias
    x, w, b = (None if array is None else array.astype(ready.dtype, copy=False) for array in given)
    dtypes = [None if array is None else array.dtype for array in given]
    module = implementation("cross_entropy", x, impl)
    constants = ready.target, ready.weight, ready.num_items, ready.options
    problem = Problem(x, w, b, *constants, module, ready.chunk_rows, ready.memory, dtypes, True)
    return compute.forward(problem, aux, wanted, wanted is not None)


def _answer(result: Forward, ready: Prepared, return_aux: bool) -> Any:
    """The loss in its public shape, with aux if asked for."""

    def to_rows(row: Array) -> Array:
        return namespace(row).reshape(row, ready.shape)

    loss = to_rows(result.loss) if ready.options.reduction == "none" else result.loss
    if type(loss).__module__ == "numpy" and loss.ndim == 0:
        loss = loss[()]
    if not return_aux:
        return loss
    return loss, Aux(*(to_rows(row) for row in (result.lse, result.z_loss, result.predicted, result.entropy)))
