"""inplace=True: the gradient takes the logits' memory; everything that this could spoil is refused or noticed."""

import pytest
import torch
from tests.arrays import same_bits
from tests.ops.cross_entropy.common import grad_of, indices, logits, probabilities, true_gradient
from tests.tolerances import close

import online_softmax as osm


def intermediate(rows=6, classes=5, dtype="float32"):
    """(leaf, result of an operation on it)."""
    leaf = logits(rows, classes, dtype, grad=True)
    return leaf, leaf * 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_gradient_lies_in_the_logits_memory_and_is_the_usual_one(reduction, dtype, impl):
    leaf, x = intermediate(dtype=dtype)
    t = indices(ignored=(2,))
    loss = osm.cross_entropy(x, t, reduction=reduction, inplace=True, impl=impl)
    want_loss = osm.cross_entropy(leaf.detach(), t, reduction=reduction, impl=impl)
    assert same_bits(loss, want_loss)
    (g,) = torch.autograd.grad(loss.sum(), x, retain_graph=True)
    assert g.data_ptr() == x.data_ptr()
    close(g, grad_of(leaf, t, reduction=reduction, impl=impl), 2, atol=1e-7)
    assert same_bits(g, x)


@pytest.mark.parametrize(
    "options", [{"scale": 2.0, "softcap": 3.0}, {"z_loss": 0.1}, {"label_smoothing": 0.2}, {"num_items": 9}]
)
def test_every_option_reaches_the_gradient(options, impl):
    leaf, x = intermediate(dtype="float64")
    w = torch.tensor([0.5, 1.0, 2.0, 0.0, 3.0]).double()
    osm.cross_entropy(x, indices(), w, inplace=True, impl=impl, **options).backward()
    close(leaf.grad, true_gradient(leaf, indices(), w, **options), 32, atol=1e-15)


def test_probabilities_are_taken_too(impl):
    leaf, x = intermediate(dtype="float64")
    osm.cross_entropy(x, probabilities(), inplace=True, impl=impl).backward()
    close(leaf.grad, true_gradient(leaf, probabilities()), 32, atol=1e-15)


def test_log_sum_exp_and_loss_together_share_the_one_gradient(impl):
    for use_lse in (False, True):
        leaf, x = intermediate(dtype="float64")
        loss, aux = osm.cross_entropy(x, indices(), inplace=True, return_aux=True, impl=impl)
        (loss + (aux.lse.sum() if use_lse else 0)).backward()
        want = true_gradient(leaf, indices())
        close(leaf.grad, want + torch.softmax(leaf.detach(), 1).numpy() * use_lse, 32, atol=1e-15)


def test_an_incoming_gradient_scales_it(impl):
    for reduction in ("mean", "none"):
        leaf, x = intermediate(dtype="float64")
        (-4.0 * osm.cross_entropy(x, indices(), reduction=reduction, inplace=True, impl=impl).sum()).backward()
        close(leaf.grad, -4 * true_gradient(leaf, indices(), reduction=reduction), 16, atol=1e-15)


def test_views_of_intermediate_results_and_spatial_layouts_work(impl):
    leaf = logits(12, 10, grad=True)
    x = (leaf * 1)[::2, :5]
    osm.cross_entropy(x, indices(), inplace=True, impl=impl).backward()
    assert (leaf.grad[1::2] == 0).all()
    close(leaf.grad[::2, :5], true_gradient(leaf.detach()[::2, :5], indices()), 16, atol=1e-16)
    leaf = logits(24).reshape(2, 12, 5).requires_grad_()
    x = (leaf * 1).transpose(1, 2)
    osm.cross_entropy(x, indices(24).reshape(2, 12), inplace=True, impl=impl).backward()
    close(leaf.grad.reshape(24, 5), true_gradient(logits(24), indices(24)), 16, atol=1e-16)


class TestWhatItSpoilsIsNoticed:
    """Autograd is told that the logits were written to."""

    @pytest.mark.parametrize("reduction", ["mean", "none"])
    def test_the_version_counter_moves(self, reduction, impl):
        _, x = intermediate()
        before = x._version
        osm.cross_entropy(x, indices(), reduction=reduction, inplace=True, impl=impl).sum().backward()
        assert x._version > before

    @pytest.mark.parametrize("reduction", ["mean", "none"])
    def test_an_operation_that_saved_the_logits_raises_in_its_backward(self, reduction, impl):
        leaf = logits(grad=True)
        x = torch.exp(leaf)
        loss = osm.cross_entropy(x, indices(), reduction=reduction, inplace=True, impl=impl).sum()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    @pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
    @pytest.mark.parametrize("dtype", ["float16", "float32"])
    def test_a_second_backward_raises(self, dtype, reduction, impl):
        _, x = intermediate(dtype=dtype)
        loss = osm.cross_entropy(x, indices(), reduction=reduction, inplace=True, impl=impl).sum()
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match=r"inplace|modified"):
            loss.backward()

    def test_second_derivatives_raise(self, impl):
        for reduction in ("mean", "none"):
            _, x = intermediate()
            loss = osm.cross_entropy(x, indices(), reduction=reduction, inplace=True, impl=impl).sum()
            with pytest.raises(RuntimeError, match="inplace"):
                torch.autograd.grad(loss, x, create_graph=True)

    def test_gradients_of_probability_targets_raise(self, impl):
        _, x = intermediate(dtype="float64")
        p = probabilities().requires_grad_()
        with pytest.raises(RuntimeError, match="inplace"):
            osm.cross_entropy(x, p, inplace=True, impl=impl).backward()


class TestRefusals:
    """Refused before the first write."""

    def refused(self, match, x, t=None, error=ValueError, **options):
        before = x.detach().clone()
        version = x._version
        with pytest.raises(error, match=match):
            osm.cross_entropy(x, indices(len(x)) if t is None else t, inplace=True, **options)
        assert same_bits(x.detach(), before)
        assert x._version == version

    def test_a_leaf(self, impl):
        self.refused("leaf", logits(grad=True), impl=impl)
        self.refused("leaf", torch.nn.Parameter(logits()), impl=impl)

    def test_a_view_of_a_leaf(self, impl):
        self.refused("leaf", logits(12, grad=True)[:6], impl=impl)
        self.refused("leaf", logits(5, 6, grad=True).T, impl=impl)

    def test_no_grad_and_tensors_that_need_no_gradient(self, impl):
        self.refused("autograd records nothing", logits(), impl=impl)
        _, x = intermediate()
        with torch.no_grad():
            self.refused("autograd records nothing", x, impl=impl)

    def test_elements_that_share_memory(self, impl):
        _, x = intermediate()
        self.refused("share memory", x[:1].expand(6, 5), impl=impl)
        windows = (logits(1, 40, grad=True) * 1).as_strided((6, 5), (2, 1))
        self.refused("share memory", windows, impl=impl)

    def test_logits_that_are_not_rows_of_classes_in_memory(self, impl):
        x = logits(40).reshape(2, 5, 4, 5)
        t = indices(40, 5)[:40].reshape(2, 4, 5)
        wanted = r"wanted classes that are last in memory, .*movedim\(-1, 1\)"
        self.refused(wanted, x.requires_grad_() * 1, t, impl=impl)
        x = (x.movedim(1, -1) * 1).contiguous().detach().requires_grad_()
        osm.cross_entropy((x * 1).movedim(-1, 1), t, inplace=True, impl=impl).backward()

    def test_integers(self, impl):
        self.refused("autograd records nothing", torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2).long(), impl=impl)

    @pytest.mark.parametrize("reduction", ["mean", "none"])
    def test_targets_out_of_range(self, reduction, impl):
        _, x = intermediate()
        t = indices()
        t[5] = 17
        self.refused(r"target\[5\] is 17", x, t, IndexError, reduction=reduction, impl=impl)

    def test_unfit_options(self, impl):
        _, x = intermediate()
        self.refused("weight", x, weight=torch.ones(4), impl=impl)
        self.refused("num_items", x, num_items=0, impl=impl)

    def test_compiled_calls_and_subclasses(self):
        class Tagged(torch.Tensor):
            """Any subclass."""

        leaf = logits().as_subclass(Tagged).requires_grad_()
        with pytest.raises(ValueError, match="eager"):
            osm.cross_entropy(leaf * 1, indices(), inplace=True)
