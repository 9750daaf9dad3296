"""Attention over a stream of keys that never lie in memory together: states, and finished parts, merged.

python examples/attention_in_blocks.py
"""

import numpy as np

import online_softmax as osm


def main() -> None:
    draw = np.random.default_rng(0)
    q = draw.normal(size=(4, 16, 32))
    blocks = [(draw.normal(size=(4, n, 32)), draw.normal(size=(4, n, 32))) for n in (100, 1, 57)]

    # Each block's own attention, with its log-sum-exp ...
    parts = [osm.attention(q, keys, values, return_lse=True) for keys, values in blocks]
    # ... merges to attention over all keys, whatever the order.
    merged = osm.merge_attention([out for out, _ in parts[::-1]], [lse for _, lse in parts[::-1]])

    keys, values = (np.concatenate(each, axis=1) for each in zip(*blocks, strict=True))
    whole = osm.attention(q, keys, values)
    print(f"largest difference from all keys at once: {np.abs(merged.out - whole).max():.1e}")


if __name__ == "__main__":
    main()
