"""What attention is for: no matrix of scores in memory, and no work for tiles that a causal mask hides."""

import time

import torch

import online_softmax as osm
from online_softmax.bench.memory import peak_extra

SCORES = 8 * 2048 * 2048 * 4


def prepare(rows, name):
    q, k, v = (torch.randn(1, 8, rows, 64) for _ in range(3))
    if name == "plain":
        return lambda: torch.softmax(q @ k.mT * 0.125, -1) @ v
    return lambda: osm.attention(q, k, v)


def test_a_fifth_of_the_plain_formulas_memory():
    ours, plain = (peak_extra(f"{__name__}:prepare", rows=2048, name=name) for name in ("osm", "plain"))
    assert plain > SCORES
    assert ours < plain / 5


def test_causal_attention_skips_what_it_cannot_see():
    q, k, v = (torch.randn(1, 2, 2048, 64) for _ in range(3))

    def best(causal):
        times = []
        for _ in range(5):
            start = time.process_time()
            osm.attention(q, k, v, causal=causal)
            times.append(time.process_time() - start)
        return min(times)

    best(True)
    assert best(True) <= 0.75 * best(False)
