"""torch.compile follows every public function into one graph; the operators behind them have tests of their own."""

import pytest
import torch
from tests.ops.calls import CALLS, Tensors, tensors
from tests.tolerances import close
from torch._dynamo.exc import Unsupported
from torch._dynamo.testing import CompileCounterWithBackend

import online_softmax as osm

MORE = {
    "softmax with out": lambda a: osm.softmax(a.x.detach(), out=torch.empty_like(a.x)),
    "log_softmax with out and where": lambda a: osm.log_softmax(a.p, where=a.p > 0.1, out=torch.empty_like(a.p)),
    "logsumexp with factors in a list": lambda a: osm.logsumexp(
        a.x.double(), 1, b=[0.1, 2, 3, -4, 5], return_sign=True
    ),
    "cross_entropy_with_grad of probabilities": lambda a: osm.cross_entropy_with_grad(a.x, a.p, return_aux=True),
    "linear_cross_entropy_with_grads, none": lambda a: osm.linear_cross_entropy_with_grads(
        a.q[0], a.w, a.t, linear_bias=a.weight, reduction="none", memory="least"
    ),
    "States merged": lambda a: osm.State.empty((3,), like=a.x).update(a.x).merge(osm.State.of(a.x)).logsumexp(),
}
EAGER = "cross_entropy in place"
ALL = {name: lambda a, call=call: call(a, "auto") for name, call in CALLS.items() if name != EAGER} | MORE


# The compiler's own: it makes an instance of what it follows.
@pytest.mark.filterwarnings("ignore:.*Function.* should not be instantiated:DeprecationWarning")
def test_one_graph_gives_the_values_of_eager_mode():
    """One graph of all calls, which takes half the time of one each; what stops it is named in the error."""
    torch._dynamo.reset()

    def everything(*a):
        return {name: call(Tensors(*a)) for name, call in ALL.items()}

    compiled = torch.compile(everything, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*tensors()), everything(*tensors()), equal_nan=True)


@pytest.mark.parametrize("kind", [int, float])
def test_any_number_of_items_shares_one_compilation(kind):
    torch._dynamo.reset()

    def losses(n, *tensors):
        a = Tensors(*tensors)
        hidden = a.q[0], a.w, a.t
        loss = osm.cross_entropy(a.x, a.t, num_items=n) + osm.linear_cross_entropy(*hidden, num_items=n)
        return loss, osm.linear_cross_entropy_with_grads(*hidden, num_items=n)[1].input

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(losses, fullgraph=True, backend=counter)
    for number in (3, 4, 5, 6, 9):
        a, b = tensors(), tensors()
        got, want = compiled(kind(number), *a), losses(kind(number), *b)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(a.gradients(got[:1]), b.gradients(want[:1]))
    assert counter.frame_count == 2  # the first number, and any


def test_the_number_of_rows_may_be_the_number_of_items():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(
        lambda x, t: osm.cross_entropy(x, t, num_items=x.shape[0]), fullgraph=True, backend=counter, dynamic=True
    )
    for rows in (3, 4, 7):
        x, t = torch.randn(rows, 5), torch.arange(rows) % 5
        close(compiled(x, t), osm.cross_entropy(x, t), 4)
    assert counter.frame_count == 1


@pytest.mark.parametrize("number", [0, -1, float("nan")])
def test_a_number_of_items_is_checked(number):
    torch._dynamo.reset()
    a = tensors()
    compiled = torch.compile(lambda n: osm.cross_entropy(a.x, a.t, num_items=n), fullgraph=True, backend="eager")
    with pytest.raises(Unsupported, match="num_items is"):
        compiled(number)


def test_a_state_goes_in_and_out():
    torch._dynamo.reset()
    a = tensors()
    x = a.x.detach()
    state = torch.compile(osm.State.of, fullgraph=True, backend="eager")(x)
    merged = torch.compile(lambda state, x: state.update(x), fullgraph=True, backend="eager")(state, x)
    close(merged.logsumexp(), osm.logsumexp(torch.cat([x, x], 1), 1), 4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, t: osm.cross_entropy(x * 2, t, inplace=True), "inplace=True is for ordinary tensors in eager mode"),
        (lambda x, t: osm.check_targets(x, t), "check_targets reads what targets hold"),
    ],
)
def test_what_is_for_eager_mode_says_so(call, words):
    torch._dynamo.reset()
    a = tensors()
    with pytest.raises(Unsupported, match=words):
        torch.compile(call, fullgraph=True, backend="eager")(a.x, a.t)
