"""From loss to gradient: why the logarithm is taken of the state, never of a probability."""

from __future__ import annotations

from ..charts.loss import gradient_chart, loss_chart
from ..losses import gradient, growing, losses
from ..page import Charts, number, readouts

TITLE = "From loss to gradient"
INTRODUCTION = """
<p>Cross-entropy is minus the logarithm of one softmax: −log p<sub>t</sub>. Computed as it is written, e<sup>x</sup>
overflows, or p<sub>t</sub> becomes 0 and its logarithm infinite. Computed from the state it is
<var>m</var> + log <var>s</var> − <var>x</var><sub>t</sub>, and no exponential of anything above 0 is ever taken. Its
gradient is as plain as it gets: probability minus one-hot, which the pass that has <var>m</var> and <var>s</var> can
write at once.</p>"""


def view(largest: float, target: int, dtype: str) -> list[str | Charts]:
    """Both losses over growing logits, and the gradient where the largest logit is `largest`."""
    here, slope = losses(largest, target, dtype), gradient(largest, target, dtype)
    curve = growing(target, dtype)
    broken = next((loss.largest for loss in curve if abs(loss.naive) == float("inf") or loss.naive != loss.naive), None)
    return [
        Charts(
            ("Loss as the logits grow; diamonds, the naive way while it is finite", loss_chart(curve, largest)),
            (f"Largest logit {number(largest)}: probability, and gradient", gradient_chart(slope)),
        ),
        readouts(
            [
                ("loss, naive", number(here.naive)),
                ("loss, from the state", number(here.stable)),
                ("naive fails from", "nowhere" if broken is None else f"logits of about {number(broken, 3)}"),
                ("gradient of the target", number(slope.gradient[target])),
                ("sum of the gradient", f"{sum(slope.gradient):.1e}".replace("-", "−")),
            ]
        ),
    ]


def default() -> list[str | Charts]:
    """The pieces at the default settings."""
    return view(5.0, 1, "float32")
