"""What attention is for: no matrix of scores in memory, and no work for tiles that a causal mask hides."""

import torch

import online_softmax as osm
from online_softmax.bench.memory import peak_extra
from online_softmax.ops.attention.options import Options
from online_softmax.ops.attention.tiles import tiles

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


def test_causal_attention_computes_no_tile_that_no_query_sees():
    q, k = (torch.randn(1, 2, 1, 2048, 64), torch.randn(1, 2, 2048, 64))

    def scores(causal):
        options = Options(scale=1.0, causal=causal)
        return sum(
            (tile.heads.stop - tile.heads.start) * (tile.queries.stop - tile.queries.start) * (keys.stop - keys.start)
            for tile in tiles(q, k, options)
            for keys in tile.keys
        )

    assert scores(False) == 2 * 2048 * 2048
    # Half of the scores, and the half tiles along the diagonal.
    assert scores(False) / 2 < scores(True) <= 0.6 * scores(False)
