import numpy as np
import pytest

from online_softmax.ladder import check, cuda, run

if (reason := cuda.missing()) is not None:
    pytest.skip(reason, allow_module_level=True)

SAFE = [rung for rung in cuda.rungs() if rung.safe]


@pytest.mark.parametrize("dtype", cuda.DTYPES)
def test_every_safe_rung_is_right_on_rows_with_infinities_nan_and_outliers(dtype):
    run.check_planted("cuda", dtype, SAFE)


@pytest.mark.parametrize("rung", SAFE, ids=lambda rung: rung.name)
@pytest.mark.parametrize("dtype", cuda.DTYPES)
# Around a warp, a block of threads, a block of rows; one row, more rows than one block of the naive rung takes.
@pytest.mark.parametrize("shape", [(1, 1), (3, 31), (33, 33), (2, 1023), (2, 1025), (1, 100_003)])
def test_every_safe_rung_is_right_on_rows_of_any_length(rung, dtype, shape):
    arrays = cuda.random_arrays(*shape, dtype)
    truth = check.truth(arrays)
    arrays.result[...] = float("nan")
    arrays.loss[...] = float("nan")
    assert check.error(arrays, rung.run(arrays), truth, dtype) <= 1


@pytest.mark.parametrize(("dtype", "fine", "broken"), [("float32", 88.0, 89.0), ("float16", 11.0, 11.5)])
def test_the_unsafe_rung_overflows_where_exp_leaves_the_dtype(dtype, fine, broken):
    unsafe = next(rung for rung in cuda.rungs() if rung.name == "unsafe")
    for value, finite in ((fine, True), (broken, False)):
        arrays = cuda.from_logits(np.full((1, 1), value), np.zeros(1, np.int64), dtype)
        assert bool(unsafe.run(arrays).result.isfinite().all()) == finite
