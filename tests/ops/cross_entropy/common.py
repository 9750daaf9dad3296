"""Random problems and their float64 answers."""

import numpy as np
import torch
from tests.arrays import float64, make, random
from tests.truth import gradient_by_definition, loss_by_definition

import online_softmax as osm

IGNORED = -100


def logits(rows=6, classes=5, dtype="float64", seed=0, kind="torch", grad=False):
    """Random logits (rows, classes)."""
    x = make(kind, random((rows, classes), seed), dtype)
    return x.requires_grad_() if grad else x


def indices(rows=6, classes=5, ignored=(), kind="torch", dtype="int64", ignore_index=IGNORED):
    """Class indices that visit every class; the rows in `ignored` hold ignore_index."""
    t = (np.arange(rows) * 7 + 3) % max(classes, 1)
    t[list(ignored)] = ignore_index
    return make(kind, t, dtype)


def probabilities(rows=6, classes=5, dtype="float64", kind="torch"):
    """Class probabilities, one row of them one-hot."""
    p = np.exp(random((rows, classes), 9))
    p[0] = np.eye(classes)[0]
    return make(kind, p / p.sum(1, keepdims=True), dtype)


def truth(x, target, weight=None, **options):
    """The loss in float64, as NumPy."""
    return float64(loss_by_definition(*_tensors(x, target, weight), **options))


def true_gradient(x, target, weight=None, grad_loss=None, **options):
    """Its gradient with respect to x in float64, as NumPy."""
    return float64(gradient_by_definition(*_tensors(x, target, weight), grad_loss, **options))


def _tensors(x, target, weight):
    target = target if isinstance(target, torch.Tensor) else torch.from_numpy(np.array(target))
    return torch.from_numpy(np.array(float64(x))), target, None if weight is None else torch.from_numpy(float64(weight))


def grad_of(x, target, weight=None, grad_loss=None, **options):
    """The gradient that autograd gives for the library's loss of a fresh leaf."""
    leaf = x.detach().clone().requires_grad_()
    loss = osm.cross_entropy(leaf, target, weight, **options)
    loss.backward(torch.ones_like(loss) if grad_loss is None else grad_loss)
    return leaf.grad
