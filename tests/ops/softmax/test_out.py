"""out=: written completely and only when everything fits."""

import numpy as np
import pytest
import torch
from tests.arrays import float64, make, poisoned, random, same_bits
from tests.ops.softmax.common import FUNCTIONS, TRUTH
from tests.tolerances import close

import online_softmax as osm

WRITERS = pytest.mark.parametrize("name", ["softmax", "log_softmax"])
X = random((6, 9))


@WRITERS
@pytest.mark.parametrize("axis", [0, 1, None, (1, 0)])
def test_every_element_of_out_is_written_and_out_is_returned(name, axis, kind, impl):
    x = make(kind, X)
    out = poisoned(kind, X.shape)
    assert FUNCTIONS[name](x, axis, out=out, impl=impl) is out
    assert same_bits(out, FUNCTIONS[name](x, axis, impl=impl))


@WRITERS
@pytest.mark.parametrize("axis", [0, 1])
def test_out_may_be_the_input_itself(name, axis, kind, impl):
    for shape in ((6, 9), (3, 20_000)):
        x = make(kind, random(shape))
        want = FUNCTIONS[name](x, axis, impl=impl)
        FUNCTIONS[name](x, axis, out=x, impl=impl)
        assert same_bits(x, want)


@WRITERS
def test_a_strided_view_may_be_its_own_out_and_its_neighbours_stay(name, kind, impl):
    wide = poisoned(kind, (6, 20))
    view = wide[:, 1:19:2]
    view[...] = make(kind, X)
    want = FUNCTIONS[name](make(kind, X), impl=impl)
    FUNCTIONS[name](view, out=view, impl=impl)
    assert np.array_equal(float64(view), float64(want))
    assert np.isnan(float64(wide)[:, ::2]).all()


@WRITERS
def test_out_may_have_any_strides(name, kind, impl):
    x = make(kind, X)
    want = float64(FUNCTIONS[name](x, impl=impl))
    wide = poisoned(kind, (18, 12))
    for out in (wide[::3, 3:], wide[:9, :6].T, wide[12:, :9]):
        FUNCTIONS[name](x, out=out, impl=impl)
        assert np.array_equal(float64(out), want)
    if kind == "numpy":
        backwards = poisoned(kind, X.shape)[:, ::-1]
        FUNCTIONS[name](x, out=backwards, impl=impl)
        assert np.array_equal(backwards, want)
        columns_first = np.asfortranarray(poisoned(kind, X.shape))
        FUNCTIONS[name](x, out=columns_first, impl=impl)
        assert np.array_equal(columns_first, want)


@WRITERS
def test_the_halves_of_one_array_do_not_overlap(name, kind, impl):
    both = poisoned(kind, (12, 9))
    both[:6] = make(kind, X)
    FUNCTIONS[name](both[:6], out=both[6:], impl=impl)
    close(both[6:], TRUTH[name](float64(both[:6])), 16, atol=1e-6)
    left_and_right = poisoned(kind, (6, 18))
    left_and_right[:, :9] = make(kind, X)
    if kind == "numpy":  # interleaved views share no byte, and NumPy can tell
        FUNCTIONS[name](left_and_right[:3, :9], out=left_and_right[3:, 9:], impl=impl)
        close(left_and_right[3:, 9:], TRUTH[name](float64(make(kind, X))[:3]), 16, atol=1e-6)


@pytest.mark.parametrize("shape", [(0,), (3, 0), ()])
def test_out_of_nothing_and_of_a_single_number(shape, kind, impl):
    x, out = make(kind, np.zeros(shape)), poisoned(kind, shape)
    assert osm.softmax(x, out=out, impl=impl) is out
    assert (float64(out) == 1).all()


def test_out_takes_the_result_of_a_list_and_of_swapped_bytes(impl):
    out = poisoned("numpy", (2,), "float64")
    osm.softmax([1, 1], out=out, impl=impl)
    assert out.tolist() == [0.5, 0.5]
    osm.softmax(np.zeros(2, ">f8"), out=out, impl=impl)
    assert out.tolist() == [0.5, 0.5]


@WRITERS
def test_out_may_lie_off_the_multiples_of_its_elements_size(name, impl):
    out = np.zeros(X.size * 4 + 1, np.uint8)[1:].view(np.float32).reshape(X.shape)
    x = make("numpy", X)
    FUNCTIONS[name](x, out=out, impl=impl)
    assert np.array_equal(out, FUNCTIONS[name](x, impl=impl))


def test_out_is_counted_as_written_by_autograd():
    x, out = torch.zeros(3), torch.zeros(3)
    before = out._version
    osm.softmax(x, out=out)
    assert out._version > before


def test_out_under_no_grad_takes_a_result_of_a_tensor_that_requires_grad():
    x, out = torch.zeros(2, requires_grad=True), torch.empty(2)
    with torch.no_grad():
        assert osm.softmax(x, out=out).tolist() == [0.5, 0.5]


class TestRefusals:
    """Every unfit out= is refused with its reason and with what is wanted, and nothing has been written."""

    def refused(self, match, x, out, error=ValueError, **options):
        before = float64(out).copy() if hasattr(out, "shape") else None
        kind = "a torch tensor" if isinstance(x, torch.Tensor) else "a NumPy array"
        dtype = options.get("dtype") or str(x.dtype).removeprefix("torch.")
        wanted = f"; wanted {kind} of shape {tuple(x.shape)}, dtype {dtype}"
        wanted += f" on {x.device}" if isinstance(x, torch.Tensor) else ""
        for fn in (osm.softmax, osm.log_softmax):
            with pytest.raises(error, match=match) as caught:
                fn(x, out=out, **options)
            assert "autograd" in match or str(caught.value).endswith(wanted)
        if before is not None:
            assert np.array_equal(float64(out), before, equal_nan=True)

    def test_a_wrong_shape(self, kind):
        self.refused(r"out has shape \(9, 6\).*wanted a .* of shape \(6, 9\)", make(kind, X), poisoned(kind, (9, 6)))
        self.refused("out has shape", make(kind, X), poisoned(kind, (1, 6, 9)))

    def test_a_wrong_dtype(self, kind):
        self.refused(r"float64.*wanted.*float32", make(kind, X), poisoned(kind, X.shape, "float64"))
        self.refused(r"float32.*wanted.*float64", make(kind, X), poisoned(kind, X.shape), dtype="float64")

    def test_something_that_is_no_array(self, kind):
        self.refused("out is a list", make(kind, X), [0.0], TypeError)
        self.refused("out is a MaskedArray", make(kind, X), np.ma.zeros(X.shape), TypeError)

    def test_an_array_of_another_library(self):
        self.refused("out is a torch tensor", np.zeros(2), torch.zeros(2, dtype=torch.float64), TypeError)
        self.refused("out is a NumPy array", torch.zeros(2), np.zeros(2, np.float32), TypeError)

    def test_a_tensor_of_another_device_or_layout(self):
        with pytest.raises(TypeError, match=r"out is a torch tensor of .* on meta; wanted a torch tensor .* on cpu"):
            osm.softmax(torch.zeros(2), out=torch.zeros(2, device="meta"))
        with pytest.raises(ValueError, match=r"out has layout torch\.sparse_coo; wanted"):
            osm.softmax(torch.zeros(2), out=torch.zeros(2).to_sparse())

    def test_a_read_only_array(self):
        out = np.zeros(X.shape)
        out.flags.writeable = False
        self.refused("read-only", X, out)

    def test_a_partial_overlap(self, kind):
        wide = make(kind, random((7, 9)))
        self.refused("overlaps", wide[:6], wide[1:])
        self.refused("overlaps", wide[:6, :6], wide[:6, :6].T)
        if kind == "numpy":
            self.refused("overlaps", wide[:6], wide[5::-1])

    def test_an_overlap_that_differs_only_in_dtype(self):
        x = np.zeros(8, np.float32)
        self.refused("overlaps", x, x.view(np.float16).reshape(8, 2)[:, 0], dtype="float16")

    def test_elements_that_share_memory(self, kind):
        row = poisoned(kind, (1, 9))
        out = np.lib.stride_tricks.as_strided(row, (6, 9), (0, 4)) if kind == "numpy" else row.expand(6, 9)
        self.refused("share memory", make(kind, X), out)
        long = poisoned(kind, (14,))
        out = (
            np.lib.stride_tricks.as_strided(long, (6, 9), (4, 4))
            if kind == "numpy"
            else long.as_strided((6, 9), (1, 1))
        )
        self.refused("share memory", make(kind, X), out)

    def test_a_byte_swapped_array(self):
        self.refused("float64 in swapped byte order", X, np.zeros(X.shape, ">f8"))

    def test_a_call_that_autograd_records(self):
        x = torch.from_numpy(X).requires_grad_()
        self.refused("autograd", x, torch.empty_like(x).detach())
        self.refused("autograd", x.detach(), torch.zeros(X.shape, dtype=torch.float64, requires_grad=True))
