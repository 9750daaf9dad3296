"""What is refused on every process, before any of them waits for another."""

from __future__ import annotations

import pytest
import torch
from tests.distributed.sharded import rows

from online_softmax import distributed


def case_disagreements_are_errors(rank, size):
    logits, target = rows(12)
    with pytest.raises(ValueError, match="disagree about tensor 0: rank 0: shape \\(3,\\)"):
        distributed.check_group(torch.zeros(3 if rank == 0 else 4))
    with pytest.raises(ValueError, match="disagree about causal"):
        distributed.check_group(causal=rank == 0)
    distributed.check_group(logits, causal=True)
    for options in ({"label_smoothing": 0.1 * (rank == 0)}, {"num_items": 5 + rank}):
        with pytest.raises(ValueError, match=f"disagree about {next(iter(options))}"):
            distributed.cross_entropy(logits, target, **options, debug=True)
    wants, frozen = (torch.ones(9, 6, requires_grad=on) for on in (rank == 0, False))
    with pytest.raises(ValueError, match="disagree about gradient of input"):
        distributed.linear_cross_entropy(wants, torch.ones(12, 6), target, debug=True)
    head = torch.ones(12, 6, requires_grad=rank == 0)  # each process's own affair
    loss = distributed.linear_cross_entropy(frozen, head, target, debug=True)
    if rank == 0:
        loss.backward()
    with pytest.raises(ValueError, match="disagree about dtype"):
        distributed.cross_entropy(logits.to(torch.float64 if rank else torch.float32), target, debug=True)
    with pytest.raises(ValueError, match="do not cover the classes"):
        distributed.cross_entropy(logits, target, vocab_start=0, vocab_size=12 * size, debug=True)
    distributed.cross_entropy(logits, target, debug=True)


def case_uneven_shards_are_named_before_what_follows_from_them(rank, size):
    """Each process makes another vocabulary of them, and a target lies in one and not in the other."""
    classes = 12 if rank == 0 else 10
    astray = torch.tensor([10 * size])
    wanted = rf"rank 0: \[0, 12\) of {12 * size}, rank 1: \[10, 20\) of {10 * size}.*uneven ones need vocab_start"
    with pytest.raises(ValueError, match=wanted):
        distributed.cross_entropy(torch.zeros(1, classes), astray, debug=True)
    with pytest.raises(ValueError, match=wanted):
        distributed.linear_cross_entropy(torch.zeros(1, 3), torch.zeros(classes, 3), astray, debug=True)


def case_check_group_takes_tensors(rank, size):
    for call, came in ((lambda: distributed.check_group(3), "int"), (lambda: distributed.check_group([]), "list")):
        with pytest.raises(TypeError, match=rf"^tensors\[0\] is a {came}; wanted a torch tensor"):
            call()
    with pytest.raises(TypeError, match="x is a Tensor; wanted a plain value"):
        distributed.check_group(x=torch.zeros(2))
    with pytest.raises(TypeError, match=r"way is .*; wanted a plain value"):
        distributed.check_group(way=lambda: 0)
    with pytest.raises(TypeError, match=r"^tensors\[1\]" if rank == 1 else r"^on rank 1: tensors\[1\]"):
        distributed.check_group(torch.zeros(1), None if rank == 1 else torch.zeros(1))


def case_wrong_arguments_are_errors_on_every_process(rank, size):
    logits, target = rows(12)
    with pytest.raises(ValueError, match="It has all classes"):
        distributed.cross_entropy(logits, target, vocab_size=12)
    everything = {"vocab_start": 0, "vocab_size": 12}
    for debug, text in ((False, "classes of more than one process"), (True, "do not cover the classes")):
        with pytest.raises(ValueError, match=text):
            distributed.cross_entropy(logits, target, debug=debug, **everything)
        with pytest.raises(ValueError, match=text):
            distributed.linear_cross_entropy(logits, torch.randn(12, 12), target, debug=debug, **everything)
    with pytest.raises(ValueError, match="beyond vocab_size"):
        distributed.cross_entropy(logits, target, vocab_start=12 * size - 1, vocab_size=12 * size)
    with pytest.raises(ValueError, match="both or neither"):
        distributed.cross_entropy(logits, target, vocab_start=0)
    with pytest.raises(IndexError, match=r"target\[1\] is 4000"):
        distributed.cross_entropy(logits, target.index_fill(0, torch.tensor(1), 4000))
    with pytest.raises(TypeError, match="class indices"):
        distributed.cross_entropy(logits, torch.softmax(logits, 1))
    with pytest.raises(TypeError, match="class indices"):
        distributed.linear_cross_entropy(logits, torch.randn(12, 12), torch.softmax(logits, 1))
    for unsupported in ({"inplace": True}, {"memory": "least"}):
        with pytest.raises(TypeError, match="unexpected keyword"):
            distributed.linear_cross_entropy(logits, torch.randn(12, 12), target, **unsupported)
    with pytest.raises(ValueError, match="one number a class of the vocabulary"):
        distributed.cross_entropy(logits, target, torch.ones(12))
    with pytest.raises(ValueError, match="axis is 5"):
        distributed.softmax(logits, 5)
    loss = distributed.cross_entropy(logits.requires_grad_(), target)
    (grad,) = torch.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()


def case_what_one_process_refuses_is_an_error_on_all(rank, size):
    logits, target = rows(12)
    x, w = torch.randn(9, 6), torch.randn(12, 6)
    astray = target.index_fill(0, torch.tensor(1), 4000) if rank == 1 else target
    wrong = r"target\[1\] is 4000" if rank == 1 else r"on rank 1: target\[1\] is 4000"
    with pytest.raises(IndexError, match=wrong):
        distributed.cross_entropy(logits, astray, debug=True)
    with pytest.raises(IndexError, match=wrong):
        distributed.linear_cross_entropy(x, w, astray, debug=True)
    weight = torch.ones(12 if rank == 0 else 12 * size)
    with pytest.raises(ValueError, match="one number a class" if rank == 0 else "on rank 0: weight has"):
        distributed.cross_entropy(logits, target, weight, debug=True)
    with pytest.raises(ValueError, match="beyond vocab_size" if rank == 0 else "on rank 0: local_logits has"):
        distributed.cross_entropy(
            logits, target, vocab_start=12 * size if rank == 0 else 12 * rank, vocab_size=12 * size, debug=True
        )
    distributed.cross_entropy(logits, target, debug=True)


def case_whatever_one_process_refuses_stops_none_of_them(rank, size):
    """Every argument is checked before the first of them waits for another: without that, these would hang."""
    logits, target = rows(12)
    x, w = torch.randn(9, 6), torch.randn(12, 6)
    q = torch.randn(2, 4, 8)
    first = rank == 0
    for call, error, text in (
        (
            lambda: distributed.cross_entropy(logits, target, reduction="avg" if first else "sum", debug=True),
            ValueError,
            "avg",
        ),
        (
            lambda: distributed.cross_entropy(logits.numpy() if first else logits, target, debug=True),
            TypeError,
            "ndarray",
        ),
        (
            lambda: distributed.cross_entropy(logits[:5] if first else logits, target, debug=True),
            ValueError,
            "target has",
        ),
        (
            lambda: distributed.cross_entropy(logits, target, impl="gpu" if first else "auto", debug=True),
            ValueError,
            "gpu",
        ),
        (
            lambda: distributed.linear_cross_entropy(x[:, :5] if first else x, w, target, debug=True),
            ValueError,
            "wanted",
        ),
        (
            lambda: distributed.linear_cross_entropy(x, w, target, chunk_rows=0 if first else 1, debug=True),
            ValueError,
            "0",
        ),
        (
            lambda: distributed.linear_cross_entropy(x, w, target, linear_bias=w[: 3 if first else 12, 0], debug=True),
            ValueError,
            "linear_bias has",
        ),
        (lambda: distributed.ring_attention(q[0] if first else q, q, q, debug=True), ValueError, "wanted"),
        (lambda: distributed.ring_attention(q, q, q.double() if first else q, debug=True), ValueError, "one dtype"),
        (lambda: distributed.ring_attention(q[:, :3] if first else q, q, q, debug=True), ValueError, "wanted"),
        (
            lambda: distributed.ring_attention(q, q, q, scale="half" if first else None, debug=True),
            TypeError,
            "scale is",
        ),
        (
            lambda: distributed.ring_attention(q, q, q, lengths=[5] if first else None, debug=True),
            ValueError,
            "shard_seq",
        ),
        (
            lambda: distributed.ring_attention(q, q, q, causal=None if first else True, debug=True),
            TypeError,
            "causal is",
        ),
        (lambda: distributed.ring_attention(q, q, q, impl="gpu" if first else "auto", debug=True), ValueError, "gpu"),
    ):
        with pytest.raises(error, match=text) as raised:
            call()
        assert str(raised.value).startswith("on rank 0: ") != first
    with pytest.raises(ValueError, match="disagree about key heads"):
        distributed.ring_attention(q, q[:1] if first else q, q[:1] if first else q, debug=True)
    with pytest.raises(ValueError, match="disagree about biased"):
        distributed.linear_cross_entropy(x, w, target, linear_bias=None if first else w[:, 0].clone(), debug=True)


def case_flags_and_axes_are_checked(rank, size):
    logits, target = rows(12)
    q = torch.zeros(2, 4, 8)
    for call, text in (
        (lambda: distributed.cross_entropy(logits, target, return_aux="yes"), "return_aux is 'yes'"),
        (lambda: distributed.cross_entropy(logits, target, debug=1), "debug is 1"),
        (lambda: distributed.ring_attention(q, q, q, causal=None), "causal is None"),
        (lambda: distributed.ring_attention(q, q, q, scale="half"), "scale is 'half'"),
        (lambda: distributed.ring_attention(q, q.numpy(), q), "k is a ndarray; wanted a torch tensor"),
        (lambda: distributed.softmax(logits, True), "axis is True; wanted an int"),
        (lambda: distributed.softmax(logits, dim=1), "takes axis=, not dim="),
        (lambda: distributed.cross_entropy(logits, labels=target), "takes target=, not labels="),
        (lambda: distributed.linear_cross_entropy(logits, logits, labels=target), "takes target=, not labels="),
        (lambda: distributed.ring_attention(q, q, q, is_causal=True), "takes causal=, not is_causal="),
        (lambda: distributed.shard_sequence(q, 1.0), "axis is 1.0"),
        (lambda: distributed.shard_sequence(q.numpy()), "x is a ndarray; wanted a torch tensor"),
        (lambda: distributed.gather_sequence(q.numpy(), lengths=[4]), "local is a ndarray; wanted a torch tensor"),
        (lambda: distributed.linear_cross_entropy(logits, logits, target, chunk_rows=2.5), "chunk_rows is 2.5"),
    ):
        with pytest.raises(TypeError, match=text):
            call()


def case_a_length_that_a_ring_would_not_take(rank, size):
    with pytest.raises(ValueError, match=rf"no multiple of {2 * size} .* lengths=\[13\], here and to ring_attention"):
        distributed.shard_sequence(torch.zeros(2, 13, 8))
    with pytest.raises(ValueError, match="pass the whole lengths, as to shard_sequence"):
        distributed.ring_attention(*(torch.zeros(2, 3, 8) for _ in range(3)))


def case_what_a_dtensor_knows_itself(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    logits, target = rows(41)
    mesh = init_device_mesh("cpu", (size,))
    given = distribute_tensor(logits, mesh, [Shard(1)])
    distributed.cross_entropy(given, target, vocab_size=41, group=mesh.get_group())
    for more, text in (({"vocab_size": 99}, "vocab_size is 99; .* has 41"), ({"vocab_start": 50}, "vocab_start is 50")):
        with pytest.raises(ValueError, match=text):
            distributed.cross_entropy(given, target, **more)
    with pytest.raises(TypeError, match="q is a DTensor; wanted this process's own part"):
        distributed.ring_attention(given[None], given[None], given[None])
    with pytest.raises(TypeError, match="x is a DTensor"):
        distributed.shard_sequence(given)
