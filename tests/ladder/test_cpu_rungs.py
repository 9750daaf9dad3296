import shutil

import numpy as np
import pytest

from online_softmax.ladder import check, cpu, run, yardsticks

if (reason := cpu.missing()) is not None:
    pytest.skip(reason, allow_module_level=True)

SAFE = [rung for rung in cpu.rungs() if rung.safe]
BY_NAME = {rung.name: rung for rung in cpu.rungs()}


@pytest.mark.parametrize("dtype", cpu.DTYPES)
def test_every_safe_rung_is_right_on_rows_with_infinities_nan_and_outliers(dtype):
    run.check_planted("cpu", dtype, SAFE)


@pytest.mark.parametrize("rung", cpu.rungs(), ids=lambda rung: rung.name)
@pytest.mark.parametrize("dtype", cpu.DTYPES)
# Around a vector, a block, the 32 lanes of the element-by-element rung and its stretch of 32768; one row, many rows.
@pytest.mark.parametrize("shape", [(1, 1), (3, 31), (5, 33), (2, 1023), (2, 1025), (1, 32769), (67, 129)])
def test_every_rung_is_right_on_ordinary_rows_of_any_length(rung, dtype, shape):
    arrays = cpu.random_arrays(*shape, dtype)
    truth = check.truth(arrays)
    arrays.result[...] = np.nan
    arrays.loss[...] = np.nan
    assert check.error(arrays, rung.run(arrays), truth, dtype) <= 1


def test_the_unsafe_rung_overflows_just_above_88_and_the_naive_one_does_not():
    for value, finite in ((88.0, True), (89.0, False)):
        arrays = cpu.from_logits(np.full((1, 1), value, np.float32), np.zeros(1, np.int64))
        assert np.isfinite(BY_NAME["unsafe"].run(arrays).result).all() == finite
        assert BY_NAME["naive"].run(arrays).result[0, 0] == 1.0


def test_a_loss_after_softmax_is_infinite_where_the_fused_one_is_not():
    arrays = cpu.from_logits(np.array([[0.0, 200.0]], np.float32), np.zeros(1, np.int64))
    assert BY_NAME["online, then a loss"].run(arrays).loss[0] == np.inf
    assert BY_NAME["fused"].run(arrays).loss[0] == 200.0


@pytest.mark.parametrize("dtype", cpu.DTYPES)
def test_the_librarys_own_kernels_pass_the_same_check(dtype):
    run.check_planted("cpu", dtype, yardsticks.yardsticks(compiled=False)[:2])


def test_a_wrong_rung_stops_the_ladder_before_anything_is_timed(monkeypatch):
    def wrong(arrays):
        answer = BY_NAME["online"].run(arrays)
        answer.result[0, 0] *= 1.001
        return answer

    everyone = [rung._replace(run=wrong) if rung.name == "online" else rung for rung in cpu.rungs()]
    monkeypatch.setattr(cpu, "rungs", lambda: everyone)
    monkeypatch.setattr(cpu, "seconds", lambda call: pytest.fail("a wrong rung was timed"))
    with pytest.raises(run.WrongRungError, match="online is wrong"):
        run.climb("cpu", 4, 100, "float32", compiled=False)


def test_an_element_that_is_never_written_does_not_pass(monkeypatch):
    def lazy(arrays):
        result = arrays.result.copy()
        answer = BY_NAME["naive"].run(arrays)
        answer.result[-1, -1] = result[-1, -1]
        return answer

    with pytest.raises(run.WrongRungError, match="inf times"):
        run.check_planted("cpu", "float32", [BY_NAME["naive"]._replace(run=lazy)])


def test_arguments_that_do_not_fit_are_refused():
    from online_softmax.ladder import _rungs

    x, target, loss = np.zeros((2, 3), np.float32), np.zeros(2, np.int64), np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="no rung is called fast"):
        _rungs.run("fast", x, x.copy(), target, loss)
    with pytest.raises(ValueError, match=r"\(rows, columns\)"):
        _rungs.run("naive", x, np.zeros((2, 4), np.float32), target, loss)


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns about itself
def test_what_torch_compile_makes_is_checked_and_timed_too():
    pytest.importorskip("torch")
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    assert run.climb("cpu", 8, 100, "float32").rung("torch.compile(softmax)").error <= 1


def test_torch_compile_is_left_out_where_it_does_not_run(monkeypatch):
    torch = pytest.importorskip("torch")

    def broken(*_, **__):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", broken)
    names = [rung.name for rung in run.climb("cpu", 8, 100, "float32").rungs]
    assert "torch.softmax" in names
    assert "torch.compile(softmax)" not in names


def test_climbing_measures_every_rung_relative_to_naive_and_to_a_copy():
    ladder = run.climb("cpu", 64, 1000, "float32", compiled=False)
    names = [rung.name for rung in ladder.rungs]
    assert names[:7] == [
        "unsafe",
        "naive",
        "three-pass",
        "online, by element",
        "online",
        "online, then a loss",
        "fused",
    ]
    assert "softmax of this library" in names
    assert ladder.rung("naive").relative == 1.0
    for rung in ladder.rungs:
        assert rung.seconds > 0
        assert rung.of_copy == pytest.approx(ladder.copy_seconds / rung.seconds)
