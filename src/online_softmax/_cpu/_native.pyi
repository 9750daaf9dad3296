from typing import Any

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
def rescale(array: Any, factor: float, threads: int, /) -> bool: ...
def layout(x: Any, result: Any, axis: int, /) -> str: ...
def shared_jobs() -> int: ...
def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str, /) -> bool: ...
