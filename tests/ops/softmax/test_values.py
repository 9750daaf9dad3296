"""softmax, log_softmax and logsumexp of finite numbers: any height, width, dtype, and always the same bits."""

import math
from functools import cache

import ml_dtypes
import numpy as np
import pytest
import scipy.special
import torch
from tests.arrays import INF, float64, make, random, same_bits
from tests.ops.softmax.common import FUNCTIONS, NAMES, TRUTH
from tests.tolerances import assert_as_accurate_as_peers, close
from tests.truth import exact_log_softmax, exact_logsumexp, exact_softmax

import online_softmax as osm

EXACT = {"softmax": exact_softmax, "log_softmax": exact_log_softmax, "logsumexp": exact_logsumexp}
PEERS = {
    "softmax": (lambda x: torch.softmax(torch.from_numpy(x), -1), lambda x: scipy.special.softmax(x, axis=-1)),
    "log_softmax": (
        lambda x: torch.log_softmax(torch.from_numpy(x), -1),
        lambda x: scipy.special.log_softmax(x, axis=-1),
    ),
    "logsumexp": (lambda x: torch.logsumexp(torch.from_numpy(x), -1), lambda x: scipy.special.logsumexp(x, axis=-1)),
}


@pytest.mark.parametrize(
    ("width", "height"), [(3, 0), (3, -80000), (3, 3e6), (64, 700), (300, 0), (300, 3e6), (1000, 0)]
)
@pytest.mark.parametrize("name", NAMES)
def test_float32_errs_no_more_than_the_better_peer_plus_two_ulp(name, width, height, impl):
    x = (random((1024, width), seed=width, spread=4.0) + height).astype(np.float32)
    truth, m = TRUTH[name](x), x.max(-1, keepdims=name != "logsumexp").astype(np.float64)
    peers = [peer(x) for peer in PEERS[name]]
    for same in (x, torch.from_numpy(x)):
        assert_as_accurate_as_peers(FUNCTIONS[name](same, -1, impl=impl), truth, m, *peers)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_computed_in_float32_and_rounded_once(name, dtype, impl):
    x = make("torch", random((1000, 100)), dtype)
    truth = TRUTH[name](float64(x))
    got = FUNCTIONS[name](x, -1, impl=impl)
    assert got.dtype == x.dtype
    close(got, truth, 0.52)
    m = float64(x).max(-1, keepdims=name != "logsumexp")
    assert_as_accurate_as_peers(got, truth, m, PEERS[name][0](x.float().numpy()).to(x.dtype))


@cache  # 400 digits take their time
def exact_rows(name):
    x = random((40, 7))
    return x, [EXACT[name](row) for row in x]


@pytest.mark.parametrize("name", NAMES)
def test_float64_is_right_to_a_few_units_in_the_last_place(name, kind, impl):
    x, want = exact_rows(name)
    got = FUNCTIONS[name](make(kind, x, "float64"), -1, impl=impl)
    close(got, want, 32 if name == "softmax" else 4, atol=2e-15)


@pytest.mark.parametrize("height", [0.0, 1e4, 1e8, -1e8, 1e20, -1e36])
def test_equal_numbers_share_equally_at_any_height(height, kind, impl):
    x = make(kind, [[height] * 5] * 2)
    close(osm.softmax(x, impl=impl), np.full((2, 5), 0.2), 2)
    close(osm.log_softmax(x, impl=impl), np.full((2, 5), -math.log(5)), 2)
    close(osm.logsumexp(x, 1, impl=impl), np.full(2, float(np.float32(height)) + math.log(5)), 2)


def test_the_whole_range_of_float32_makes_no_nan(kind, impl):
    huge = 3.4e38
    x = make(kind, [[huge, -huge, 0.0], [-huge, -huge, -huge], [1e30, 2e30, -1e30]])
    close(osm.softmax(x, impl=impl), [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1, 0]], 2)
    logs = float64(osm.log_softmax(x, impl=impl))
    assert not np.isnan(logs).any()
    assert logs[0, 0] == logs[2, 1] == 0
    assert logs[0, 1] == -INF
    close(osm.logsumexp(x, 1, impl=impl), float64(x).max(1), 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("row", [[0.0, -40.0], [-40.0, 0.0, -41.0], [0.0, -80.0], [-35.0, -36.0, 0.0, -37.0]])
def test_small_terms_beside_a_dominant_one_are_kept(row, dtype, kind, impl):
    x = make(kind, row, dtype)
    lse = osm.logsumexp(x, impl=impl)
    close(lse, exact_logsumexp(row), 4)
    close(osm.log_softmax(x, impl=impl), exact_log_softmax(row), 4)


def test_a_term_of_1e_minus_304_is_kept_in_float64(kind, impl):
    close(osm.logsumexp(make(kind, [0.0, -700.0], "float64"), impl=impl), exact_logsumexp([0.0, -700.0]), 4)


def test_probabilities_below_the_smallest_normal_are_exactly_zero(kind, impl):
    p = float64(osm.softmax(make(kind, [0.0, -88.0, -87.0, -200.0]), impl=impl))
    assert p[1] == 0.0
    assert p[3] == 0.0
    assert p[2] > 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("width", [256, 257, 4096, 50257])
def test_wide_uniform_rows_do_not_saturate_in_half_precision(width, dtype, impl):
    for shape, axis in (((2, width), 1), ((width, 2), 0)):
        x = torch.zeros(shape, dtype=getattr(torch, dtype))
        close(osm.softmax(x, axis, impl=impl), np.full(shape, 1 / width), 1)
        close(osm.log_softmax(x, axis, impl=impl), np.full(shape, -math.log(width)), 1)
        close(osm.logsumexp(x, axis, impl=impl), np.full(2, math.log(width)), 1)


@pytest.mark.parametrize("width", [1, 2, 8191, 8192, 8193, 65537, 128256, 256000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vocabularies_of_every_size(width, dtype, impl):
    x = make("numpy", random((2, width), seed=width), dtype)
    n = 8
    close(osm.logsumexp(x, 1, impl=impl), TRUTH["logsumexp"](x), n)
    close(osm.log_softmax(x, impl=impl), TRUTH["log_softmax"](x), n, atol=np.finfo(dtype).eps)
    close(osm.softmax(x, impl=impl).sum(1, dtype=np.float64).astype(dtype), np.ones(2), n)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64", "bool"])
@pytest.mark.parametrize("name", NAMES)
def test_integers_and_bools_become_the_default_float_before_anything_is_subtracted(name, dtype, kind, impl):
    row = {"int8": [-128, 127, 0], "uint8": [0, 255, 1], "int16": [-32768, 32767, 0], "int64": [20, 30, 100]}.get(
        dtype, [False, True, True]
    )
    x = make(kind, row, dtype)
    got = FUNCTIONS[name](x, 0, impl=impl)
    assert got.dtype == (np.float64 if kind == "numpy" else torch.float32)
    close(got, EXACT[name]([float(v) for v in row]), 8)


def test_tensors_of_integers_follow_torchs_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        assert osm.softmax(torch.tensor([1, 2])).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_numpy_arrays_work_through_ml_dtypes(name, impl):
    x = random((3, 50)).astype(ml_dtypes.bfloat16)
    before = x.copy()
    got = FUNCTIONS[name](x, -1, impl=impl)
    assert got.dtype == x.dtype
    assert x.tobytes() == before.tobytes()
    close(np.asarray(got), TRUTH[name](x.astype(np.float64)), 0.52)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_floating_dtypes_are_kept(name, dtype, kind, impl):
    x = make(kind, [[1.0, 2.0, 3.0]], dtype)
    assert FUNCTIONS[name](x, -1, impl=impl).dtype == x.dtype


@pytest.mark.parametrize("shape", [(60, 300), (7, 20000)])
@pytest.mark.parametrize("name", NAMES)
def test_a_rows_bits_do_not_depend_on_the_rows_around_it_nor_on_the_run(name, shape, kind, impl):
    x = make(kind, random(shape))
    run = FUNCTIONS[name]
    whole = run(x, -1, impl=impl)
    assert same_bits(whole, run(x, -1, impl=impl))
    for i in (0, 3, shape[0] - 1):
        assert same_bits(whole[i : i + 1], run(x[i : i + 1], -1, impl=impl))
    assert same_bits(whole[2:5], run(x[2:5], -1, impl=impl))


def test_the_number_of_threads_does_not_change_a_bit(impl):
    x = torch.from_numpy(random((40, 5000)).astype(np.float32))
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        results.append([FUNCTIONS[name](x, -1, impl=impl) for name in NAMES])
    torch.set_num_threads(threads)
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))
