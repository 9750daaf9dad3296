"""online_softmax.special: SciPy's own signatures, so that a program changes its import and nothing else."""

import inspect
import itertools

import numpy as np
import pytest
import scipy.special
from tests.arrays import INF, NAN, random
from tests.tolerances import close

from online_softmax import special

PROGRAM = """
import numpy as np
from {library} import log_softmax, logsumexp, softmax

rng = np.random.default_rng(4)
scores = rng.normal(size=(3, 50, 4)) * 5
result = [softmax(scores), softmax(scores, axis=(0, 1)), log_softmax(scores, axis=-1), logsumexp(scores)]
result += [logsumexp(scores, axis=1, keepdims=True), logsumexp(scores, 0, rng.random((1, 1, 4)))]
value, sign = logsumexp(scores, axis=2, b=rng.normal(size=4), return_sign=True)
result += [value, sign, softmax([1, 2, 3]), logsumexp([1000.0, 1000.0])]
# Responsibilities of a mixture, the usual reason to call these.
means = np.zeros((4, 2)) + np.arange(4)[:, None]
points = rng.normal(size=(100, 2))
for _ in range(5):
    log_joint = -((points[:, None] - means) ** 2).sum(-1) / 2
    share = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
    means = share.T @ points / share.sum(0)[:, None]
result.append(means)
"""


def run(library):
    names = {}
    exec(PROGRAM.format(library=library), names)
    return names["result"]


def test_a_program_for_scipy_runs_with_only_its_import_changed():
    for ours, scipys in zip(run("online_softmax.special"), run("scipy.special"), strict=True):
        close(ours, scipys, 256, atol=1e-13)
        assert np.asarray(ours).dtype == np.asarray(scipys).dtype


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_signatures_are_scipys(name):
    ours = inspect.signature(getattr(special, name)).parameters
    scipys = inspect.signature(inspect.unwrap(getattr(scipy.special, name))).parameters
    assert list(ours) == list(scipys)
    assert [p.default for p in ours.values()] == [p.default for p in scipys.values()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_are_of_scipys_kind(dtype):
    x = random((3, 4)).astype(dtype)
    for name in special.__all__:
        ours, scipys = getattr(special, name)(x), getattr(scipy.special, name)(x)
        assert type(ours) is type(scipys)
        close(ours, scipys, 32, atol=1e-6 if dtype == "float32" else 1e-14)


def test_a_signed_result_unpacks_into_two():
    value, sign = special.logsumexp([0.0, 1.0], b=[1.0, -1.0], return_sign=True)
    assert sign == -1.0
    close(value, np.log(np.e - 1), 8)


def test_complex_arrays_are_refused():
    with pytest.raises(TypeError, match="complex"):
        special.logsumexp(np.array([1j]))


@pytest.mark.parametrize("name", special.__all__)
def test_torchs_words_for_an_argument_are_answered(name):
    own = "a" if name == "logsumexp" else "x"
    with pytest.raises(TypeError, match=rf"{name}\(\) takes axis=, not dim="):
        getattr(special, name)(np.zeros(2), dim=0)
    with pytest.raises(TypeError, match=rf"{name}\(\) takes {own}=, not input="):
        getattr(special, name)(input=np.zeros(2))


def test_flags_are_true_or_false():
    for flag in ("keepdims", "return_sign"):
        with pytest.raises(TypeError, match=f"{flag} is 1; wanted True or False"):
            special.logsumexp(np.zeros(2), **{flag: 1})


def test_everything_public_is_listed():
    public = {n for n, f in vars(special).items() if inspect.isfunction(f) and f.__module__ == special.__name__}
    assert public == set(special.__all__)


@pytest.mark.parametrize("of_a", ["float16", "float32", "float64", "int64"])
@pytest.mark.parametrize(
    "b",
    [2, 2.0, np.float64(2.0), np.array(2.0), [1, 2], [1.0, 2.0], np.array([True, False]), np.array([1, 2])]
    + [np.array([0.1, 0.2], dtype) for dtype in ("float16", "float32", "float64")],
)
def test_factors_promote_as_scipys(b, of_a):
    a = np.array([1, 2], of_a)
    ours, scipys = special.logsumexp(a, b=b), scipy.special.logsumexp(a, b=b)
    assert ours.dtype == scipys.dtype
    close(ours, scipys, 4)


@pytest.mark.parametrize("of_b", ["int64", "float16"])
def test_factors_that_numpy_does_not_promote_with_bfloat16(of_b):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    value = special.logsumexp(np.array([1, 2], bfloat16), b=np.array([1, 2], of_b))
    assert value.dtype == np.float32
    close(value, scipy.special.logsumexp([1, 2], b=[1, 2]), 4)


def test_infinite_and_unknown_factors_and_elements():
    factors = (NAN, INF, -INF, 1.0, -2.0)
    with np.errstate(all="ignore"):
        for a, b in itertools.product(
            itertools.product((-INF, 0.0, INF), repeat=2), itertools.product(factors, repeat=2)
        ):
            given = np.array(a), None, np.array(b), False, True
            np.testing.assert_equal(tuple(special.logsumexp(*given)), tuple(scipy.special.logsumexp(*given)))
