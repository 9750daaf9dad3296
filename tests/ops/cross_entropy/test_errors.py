"""What cross_entropy, cross_entropy_with_grad and check_targets refuse, and how they say it."""

import re

import numpy as np
import pytest
import torch
from tests.arrays import make, random
from tests.ops.cross_entropy.common import IGNORED, indices, logits, probabilities

import online_softmax as osm

BOTH = pytest.mark.parametrize("fn", [osm.cross_entropy, osm.cross_entropy_with_grad])


@BOTH
@pytest.mark.parametrize("bad", [5, 1000, -1, -99, -101, 2**31, 2**32 + 1, -(2**40)])
def test_a_target_out_of_range_names_its_row_and_value(bad, fn, kind, impl):
    t = np.array([0, 1, bad, 2, bad, 3])
    for reduction in ("none", "mean", "sum"):
        with pytest.raises(IndexError, match=rf"target\[2\] is {bad}; wanted a class from 0 to 4, or .*-100"):
            fn(logits(kind=kind), make(kind, t, "int64"), reduction=reduction, impl=impl)


@BOTH
@pytest.mark.parametrize(
    ("word", "name"),
    [
        *(("labels", "target"), ("x", "input"), ("num_items_in_batch", "num_items"), ("lse_square_scale", "z_loss")),
        *(("softcapping", "softcap"), ("softmax_scale", "scale")),
    ],
)
def test_other_libraries_words_for_an_argument_are_answered(word, name, fn):
    with pytest.raises(TypeError, match=rf"{fn.__name__}\(\) takes {name}=, not {word}="):
        fn(logits(), np.array([0, 1]), **{word: 1})


@BOTH
def test_a_target_out_of_range_is_placed_in_the_callers_shape(fn, kind, impl):
    x, t = make(kind, random((2, 3, 4, 5))), np.zeros((2, 4, 5))
    t[1, 2, 3] = 3
    with pytest.raises(IndexError, match=r"target\[1, 2, 3\] is 3"):
        fn(x, make(kind, t, "int64"), impl=impl)
    with pytest.raises(IndexError, match=r"target\[.*\] is 7"):
        fn(make(kind, [0.0, 1.0]), make(kind, 7, "int64"), impl=impl)


@BOTH
def test_out_of_range_values_of_small_types_do_not_wrap(fn, kind):
    with pytest.raises(IndexError, match="is 255"):
        fn(logits(kind=kind), make(kind, [0, 1, 255, 2, 3, 4], "uint8"))
    with pytest.raises(IndexError, match="is -1"):
        fn(logits(kind=kind), make(kind, [0, 1, -1, 2, 3, 4], "int8"))


@BOTH
def test_minus_100_is_out_of_range_when_another_index_is_ignored(fn, kind):
    with pytest.raises(IndexError, match=r"target\[1\] is -100.*ignore_index \(7\)"):
        fn(logits(kind=kind), make(kind, [7, -100, 0, 0, 0, 0], "int64"), ignore_index=7)


@BOTH
def test_shapes_that_do_not_belong_together_are_shown(fn, kind):
    for x, t in (((6, 5), (5,)), ((6, 5), (6, 1)), ((6, 5), ()), ((5,), (5,)), ((2, 5, 3), (2, 5)), ((2, 5, 3), (6,))):
        with pytest.raises(ValueError, match=rf"target has shape {re.escape(str(t))}.*{re.escape(str(x))}"):
            fn(make(kind, np.zeros(x)), make(kind, np.zeros(t), "int64"))
    with pytest.raises(ValueError, match=r"probabilities for input of \(6, 5\)"):
        fn(logits(kind=kind), make(kind, np.zeros((6, 4))))
    with pytest.raises(ValueError, match=r"input has shape \(\)"):
        fn(make(kind, 1.0), make(kind, 0, "int64"))


@BOTH
def test_logits_with_the_classes_last_are_told_where_they_belong(fn):
    with pytest.raises(ValueError, match="classes lie along axis 1"):
        fn(torch.zeros(2, 5, 7), torch.zeros(2, 5, dtype=torch.long))
    with pytest.raises(ValueError, match="class indices must be integers"):
        fn(torch.zeros(4, 5), torch.zeros(4))


@BOTH
def test_targets_that_are_neither_indices_nor_probabilities_are_refused(fn, kind):
    for dtype in ("bool", "complex64"):
        with pytest.raises(TypeError, match=f"target has .*{dtype}"):
            fn(logits(kind=kind), make(kind, np.zeros(6), dtype))


@BOTH
def test_logits_that_are_complex_or_no_array_are_refused(fn):
    with pytest.raises(TypeError, match="input has dtype complex"):
        fn(np.zeros((2, 2), complex), np.zeros(2, int))
    with pytest.raises(TypeError, match="input has dtype complex"):
        fn(torch.zeros(2, 2, dtype=torch.complex64), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(TypeError, match="input is a NoneType"):
        fn(None, np.zeros(2, int))
    with pytest.raises(TypeError, match="target is a NoneType"):
        fn(np.zeros((2, 2)), None)


@BOTH
def test_sparse_tensors_are_refused(fn):
    sparse = torch.eye(5).to_sparse()
    for arguments, name in (((sparse, indices(5)), "input"), ((torch.eye(5), sparse), "target")):
        with pytest.raises(TypeError, match=f"{name} has layout"):
            fn(*arguments)


@BOTH
def test_two_libraries_in_one_call_are_refused(fn):
    x, t, w = logits(), indices(), torch.ones(5).double()
    for name, arguments in {"target": (x, t.numpy()), "weight": (x, t, w.numpy())}.items():
        with pytest.raises(TypeError, match=f"{name} is a ndarray.*one library"):
            fn(*arguments)
    with pytest.raises(TypeError, match=r"target is a Tensor.*one library"):
        fn(x.numpy(), t)


@BOTH
def test_tensors_on_two_devices_are_refused(fn):
    with pytest.raises(TypeError, match=r"target .*meta.*one device"):
        fn(logits(), indices().to("meta"))


@BOTH
def test_class_weights_of_the_wrong_shape_or_kind_are_refused(fn, kind):
    for shape in ((4,), (1, 5), ()):
        with pytest.raises(ValueError, match=r"weight has shape .*\(5,\)"):
            fn(logits(kind=kind), indices(kind=kind), make(kind, np.ones(shape)))
    with pytest.raises(TypeError, match="weight has dtype complex"):
        fn(logits(kind=kind), indices(kind=kind), make(kind, np.ones(5), "complex64"))


OPTIONS = [
    ({"reduction": "average"}, ValueError, "reduction is 'average'.*'none', 'mean' or 'sum'"),
    ({"reduction": None}, ValueError, "reduction is None"),
    ({"ignore_index": 1.5}, TypeError, r"ignore_index is 1\.5"),
    ({"label_smoothing": -0.1}, ValueError, r"label_smoothing is -0\.1.*0 to 1"),
    ({"label_smoothing": 1.1}, ValueError, "label_smoothing"),
    ({"label_smoothing": float("nan")}, ValueError, "label_smoothing is nan"),
    ({"label_smoothing": "much"}, TypeError, "label_smoothing is 'much'"),
    ({"scale": 0.0}, ValueError, "scale is 0"),
    ({"scale": float("inf")}, ValueError, "scale is inf"),
    ({"scale": torch.tensor(2.0)}, TypeError, "scale"),
    ({"softcap": 0.0}, ValueError, r"softcap is 0\.0.*positive"),
    ({"softcap": -3.0}, ValueError, "softcap is -3"),
    ({"softcap": float("nan")}, ValueError, "softcap is nan"),
    ({"z_loss": float("inf")}, ValueError, "z_loss is inf"),
    ({"z_loss": None}, TypeError, "z_loss is None"),
    ({"num_items": 0}, ValueError, "num_items is 0"),
    ({"num_items": -2}, ValueError, "num_items is -2"),
    ({"num_items": float("nan")}, ValueError, "num_items is nan"),
    ({"num_items": "all"}, TypeError, "num_items"),
    ({"ignore_index": True}, TypeError, "ignore_index is True; wanted an int"),
    ({"label_smoothing": True}, TypeError, "label_smoothing is True; wanted a plain number"),
    ({"z_loss": True}, TypeError, "z_loss is True"),
    ({"num_items": True}, TypeError, "num_items is True"),
    ({"num_items": 3, "reduction": "sum"}, ValueError, "num_items .*'sum'"),
    ({"num_items": 3, "reduction": "none"}, ValueError, "num_items .*'none'"),
    ({"impl": "quick"}, ValueError, "impl is 'quick'"),
]


@BOTH
@pytest.mark.parametrize(("options", "error", "text"), OPTIONS, ids=lambda o: str(o) if isinstance(o, dict) else "")
def test_options_that_cannot_be_are_named_with_what_came(options, error, text, fn, kind):
    with pytest.raises(error, match=text):
        fn(logits(kind=kind), indices(kind=kind), **options)


@BOTH
def test_num_items_of_several_elements_is_refused(fn, kind):
    with pytest.raises(ValueError, match=r"num_items has shape \(1,\)"):
        fn(logits(kind=kind), indices(kind=kind), num_items=make(kind, [3.0]))


@BOTH
def test_an_ignored_class_has_no_meaning_for_probabilities(fn, kind):
    with pytest.raises(ValueError, match="ignore_index is 2"):
        fn(logits(kind=kind), probabilities(kind=kind), ignore_index=2)


@BOTH
def test_other_words_for_the_logits_are_answered(fn):
    with pytest.raises(TypeError, match=rf"{fn.__name__}\(\) takes input=, not x="):
        fn(x=logits(), target=indices())


@BOTH
def test_flags_are_true_or_false(fn, kind):
    for value in ("yes", 1, None, torch.tensor(True)):
        with pytest.raises(TypeError, match=rf"return_aux is {re.escape(repr(value))}; wanted True or False"):
            fn(logits(kind=kind), indices(kind=kind), return_aux=value)
    with pytest.raises(TypeError, match="inplace is 'yes'; wanted True or False"):
        osm.cross_entropy(logits(kind=kind), indices(kind=kind), inplace="yes")


@BOTH
def test_lists_beside_tensors_are_called_lists(fn):
    for more, text in (({"weight": [1, 2, 3, 4, 5]}, "weight is a list"), ({"target": (0,) * 6}, "target is a tuple")):
        with pytest.raises(TypeError, match=f"{text}, input a Tensor of .*: wanted one library and one device"):
            fn(logits(), **({"target": indices()} | more))


@BOTH
def test_options_are_keyword_only(fn):
    with pytest.raises(TypeError):
        fn(logits(), indices(), None, IGNORED)


def test_arrays_cannot_be_overwritten_in_place():
    with pytest.raises(ValueError, match=r"inplace=True .*cross_entropy_with_grad"):
        osm.cross_entropy(logits(kind="numpy"), indices(kind="numpy"), inplace=True)
    with pytest.raises(TypeError):
        osm.cross_entropy_with_grad(logits(), indices(), inplace=True)


class TestCheckTargets:
    """The check that GPU tensors get only on demand."""

    def test_good_targets_ignored_rows_and_probabilities_pass(self, kind):
        assert osm.check_targets(logits(kind=kind), indices(ignored=(1,), kind=kind)) is None
        assert osm.check_targets(logits(kind=kind), probabilities(kind=kind)) is None
        assert osm.check_targets(make(kind, np.zeros((2, 3, 4))), make(kind, np.zeros((2, 4)), "int64")) is None
        osm.check_targets(logits(kind=kind), indices(kind=kind) * 0 + 9, ignore_index=9)

    def test_a_bad_target_names_row_and_value(self, kind):
        with pytest.raises(IndexError, match=r"target\[1, 2\] is 3.*0 to 2"):
            osm.check_targets(make(kind, np.zeros((2, 3, 4))), make(kind, [[0, 0, 0, 0], [0, 0, 3, 0]], "int64"))
        with pytest.raises(IndexError, match="is 2"):
            osm.check_targets(make(kind, np.zeros(2)), make(kind, 2, "int64"))

    def test_what_does_not_belong_together_is_refused_as_in_cross_entropy(self, kind):
        with pytest.raises(ValueError, match=r"target has shape \(4,\).*have shape \(6,\)"):
            osm.check_targets(logits(kind=kind), make(kind, np.zeros(4), "int64"))
        with pytest.raises(ValueError, match=r"input has shape \(\)"):
            osm.check_targets(make(kind, 1.0), make(kind, 0, "int64"))
        with pytest.raises(TypeError, match="ignore_index is 'none'"):
            osm.check_targets(logits(kind=kind), indices(kind=kind), ignore_index="none")
        with pytest.raises(TypeError, match="target is a list, input a Tensor"):
            osm.check_targets(logits(), [0] * 6)
        osm.check_targets([[0.0, 1.0]], [1])

    def test_classes_last_are_told_where_they_belong(self):
        with pytest.raises(ValueError, match="classes lie along axis 1"):
            osm.check_targets(np.zeros((2, 5, 7)), np.zeros((2, 5), int))
