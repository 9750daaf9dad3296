"""Random problems, their float64 answers, and the ways to compute them."""

import torch
from tests.arrays import random
from tests.ops.cross_entropy.common import probabilities
from tests.truth import loss_by_definition

import online_softmax as osm

ROWS, FEATURES, CLASSES = 11, 4, 7

# Everything at once, rows in chunks, the vocabulary in chunks (small ones: see `small_chunks`).
WAYS = {"one chunk": {}, "chunks of rows": {"chunk_rows": 4}, "chunks of classes": {"memory": "least"}}


def small_chunks(monkeypatch):
    """Let memory="least" take three classes at a time."""
    monkeypatch.setattr(osm.ops.linear_cross_entropy.plan, "LEAST_CLASSES", 3)
    monkeypatch.setattr(osm.ops.linear_cross_entropy.plan, "LEAST_BYTES", {"cpu": 1, "cuda": 1})


def arguments(rows=ROWS, features=FEATURES, classes=CLASSES, dtype="float64", bias=True, seed=0):
    """Leaves (input, weight, bias or None)."""
    dtype = getattr(torch, dtype)
    x = torch.from_numpy(random((rows, features), seed, 1.0)).to(dtype)
    w = torch.from_numpy(random((classes, features), seed + 1, 1.0)).to(dtype)
    b = torch.from_numpy(random((classes,), seed + 2, 1.0)).to(dtype) if bias else None
    return tuple(None if t is None else t.requires_grad_() for t in (x, w, b))


def targets(rows=ROWS, classes=CLASSES, ignored=()):
    """Class indices that visit every class; the rows in `ignored` hold −100."""
    t = (torch.arange(rows) * 3 + 1) % max(classes, 1)
    t[list(ignored)] = -100
    return t


def soft_targets(rows=ROWS, classes=CLASSES):
    return probabilities(rows, classes)


def true_loss(leaves, target, weight=None, **options):
    """The loss by its definition on float64 logits, for autograd."""
    x, w, b = leaves
    logits = x.double() @ w.double().T
    return loss_by_definition(logits if b is None else logits + b.double(), target, weight, **options)


def gradients(loss, leaves, grad_loss=None, **how):
    """Gradients of the leaves that are there."""
    leaves = [leaf for leaf in leaves if leaf is not None]
    return torch.autograd.grad(loss, leaves, torch.ones_like(loss) if grad_loss is None else grad_loss, **how)


def loss_of(leaves, target, **options):
    x, w, b = leaves
    return osm.linear_cross_entropy(x, w, target, linear_bias=b, **options)
