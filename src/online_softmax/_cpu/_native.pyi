from typing import Any

import numpy as np
from numpy.typing import NDArray

def softmax_forward(operation: int, x: Any, result: Any, axis: int, threads: int, /) -> bool: ...
def softmax_backward(operation: int, grad: Any, y: Any, result: Any, axis: int, threads: int, /) -> bool: ...
def logsumexp_backward(x: Any, grad: Any, lse: Any, result: Any, axis: int, threads: int, /) -> bool: ...
def cross_entropy_forward(
    logits: Any,
    target: Any,
    weight: Any,
    gradient: Any,
    options: tuple[int, float, float, float, float],
    reduction: int,
    num_items: float | None,
    loss: Any,
    lse: Any,
    lse_low: Any,
    divisors: Any,
    z_loss: Any,
    predicted: Any,
    entropy: Any,
    threads: int,
) -> bool: ...
def cross_entropy_backward(
    logits: Any,
    target: Any,
    weight: Any,
    gradient: Any,
    options: tuple[int, float, float, float, float],
    lse: Any,
    lse_low: Any,
    divisors: Any,
    grad_loss: Any,
    grad_lse: Any,
    threads: int,
) -> bool: ...
def attention_update(
    scores: Any, keys: int, period: int, first: int | None, m: Any, s: Any, v: Any, threads: int
) -> None: ...
def attention_gradient(
    scores: Any,
    keys: int,
    period: int,
    first: int | None,
    grad_weights: Any,
    lse: Any,
    lse_low: Any,
    delta: Any,
    threads: int,
) -> None: ...
def merge_partials(outs: list[Any], lses: list[Any], out: Any, lse: Any, threads: int, /) -> None: ...
def merge_partials_backward(
    grad_out: Any,
    grad_lse: Any,
    outs: list[Any],
    lses: list[Any],
    out: Any,
    lse: Any,
    grad_outs: list[Any],
    grad_lses: list[Any],
    threads: int,
) -> None: ...
def rescale(array: Any, factor: float, threads: int, /) -> bool: ...
def allocate(size: int, /) -> NDArray[np.uint8]: ...
def kept_memory() -> int: ...
def kept_memory_limit() -> int: ...
def limit_kept_memory(size: int, /) -> None: ...
def layout(x: Any, result: Any, axis: int, /) -> str: ...
def shared_jobs() -> int: ...
def team_jobs() -> int: ...
def use_team(address: int, /) -> None: ...
def uses_team() -> bool: ...
def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str, /) -> bool: ...
