"""States that cannot go together are refused by name, never broadcast."""

import numpy as np
import pytest
import torch

import online_softmax as osm


def test_states_of_different_rows_are_not_broadcast():
    scalar, rows = osm.State.empty((), like=np.zeros(1)), np.zeros((4, 5))
    with pytest.raises(ValueError, match=r"shapes \(\), \(4,\)"):
        scalar.update(rows)
    with pytest.raises(ValueError, match="different rows"):
        osm.merge(osm.State.empty((3,), rows), osm.State.empty((1,), rows))


def test_states_of_different_libraries_are_refused():
    with pytest.raises(TypeError, match="different libraries: ndarray, Tensor"):
        osm.merge(osm.State.of(np.zeros((2, 3))), osm.State.of(torch.zeros(2, 3)))


@pytest.mark.parametrize("x", [np.zeros(3), torch.zeros(3)])
def test_factors_of_another_library_are_refused(x):
    b = torch.ones(3) if isinstance(x, np.ndarray) else np.ones(3)
    with pytest.raises(TypeError, match="b has shape"):
        osm.logsumexp(x, b=b)


def test_logits_with_the_classes_last_are_told_where_they_belong():
    with pytest.raises(ValueError, match="classes lie along axis 1"):
        osm.cross_entropy(torch.zeros(2, 5, 7), torch.zeros(2, 5, dtype=torch.long))
    with pytest.raises(ValueError, match="class indices must be integers"):
        osm.cross_entropy(torch.zeros(4, 5), torch.zeros(4))
