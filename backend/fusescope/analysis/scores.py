"""How sparse attention probabilities are: shares below thresholds, entropy, histogram, tiles that could be
skipped and what skipping them would cost; and what padding wastes.

The functions take arrays of NumPy or of torch, ``xp`` being the module whose arrays they are. ``p`` has shape
(heads, queries, keys) with rows that sum to 1 (or to 0 where a query sees no key); ``live`` is bool (queries,
keys), True where the mask keeps: elements that the mask leaves out are not counted, for they cost nothing
already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fusescope.core.schema import Parameter

THRESHOLDS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
BINS = tuple(-12 + 0.5 * i for i in range(25))
"""Edges of the histogram of log10 p: -12, -11.5, … , 0. What is smaller is in the first bin, zeros are
counted by themselves."""
TILES = (16, 32, 64, 128)
PIXELS = 64  # of a heat map's side


def counts(p, live, xp=np) -> dict[str, list]:
    """Per head: "live" elements, "zeros" among them (exact), and "below": a count for each of THRESHOLDS."""
    each = [p[h][live] for h in range(p.shape[0])]
    return {
        "live": [len(v) for v in each],
        "zeros": [int((v == 0).sum()) for v in each],
        "below": [[int((v < t).sum()) for t in THRESHOLDS] for v in each],
    }


def histogram(p, live, xp=np) -> list[list[int]]:
    """Per head the counts of nonzero live elements between the edges BINS of log10 p; p = 1 belongs to the
    last."""
    found = []
    for h in range(p.shape[0]):
        values = p[h][live]
        values = values[values > 0]
        place = xp.floor((xp.log10(values) - BINS[0]) / (BINS[1] - BINS[0]))
        place = xp.clip(place, 0, len(BINS) - 2)
        found.append([int((place == b).sum()) for b in range(len(BINS) - 1)])
    return found


def entropy(p, live, xp=np) -> list[float]:
    """Per head the mean over queries of -Σ p log2 p, in bits; queries that see no key are left out. 2^entropy
    is the number of keys that as even a distribution would spread over."""
    rows = live.any(-1)
    logs = xp.where(p > 0, xp.log2(xp.where(p > 0, p, 1.0)), 0.0)
    bits = -(p * logs).sum(-1)[:, rows]
    return [float(b.sum()) / max(int(rows.sum()), 1) for b in bits]


def most_bits(live) -> float:
    """The entropy of attention spread evenly over all live keys, mean over the queries that see any: what
    ``entropy`` is at most."""
    seen = [int(n) for n in live.sum(-1) if n]
    return sum(math.log2(n) for n in seen) / len(seen) if seen else 0.0


def tile_tops(p, tile: int, xp=np):
    """The largest probability in every tile: (heads, ⌈queries / tile⌉, ⌈keys / tile⌉)."""
    return xp.amax(_cut(p, tile, xp), (-3, -1))


def heat(p, xp=np, pixels: int = PIXELS) -> tuple[list, int]:
    """(mean probability in each of at most pixels × pixels tiles as nested lists (heads, rows, columns), the
    tiles' side)."""
    side = max(1, -(-max(p.shape[-2:]) // pixels))
    sums = _cut(p, side, xp).sum((-3, -1))
    sizes = _cut(xp.ones_like(p[:1]), side, xp).sum((-3, -1))
    return (sums / sizes).tolist(), side


def skippable(p, v, live, tile: int, xp=np) -> list[list[dict]]:
    """Per head and threshold: what is gained and lost by skipping every tile whose largest probability is
    below the threshold.

    v: (heads, keys, head_dim). Each entry: "tiles" with a live element, "skipped" of them, and "error": ‖out'
    − out‖₂ / ‖out‖₂ of the head's output, where the keys that are left share the whole weight, as in a kernel
    that never sees the others; "lost": queries left without a key (their output is zero).
    """
    tops = tile_tops(p, tile, xp)
    occupied = tile_tops(1.0 * live[None], tile, xp)[0] > 0
    out = p @ v
    norm = [float(n) for n in (out * out).sum((-2, -1))]
    found: list[list[dict]] = [[] for _ in range(p.shape[0])]
    for t in THRESHOLDS:
        skip = (tops < t) & occupied
        kept = p * ~_spread(skip, tile, p.shape[-2:])
        weight = kept.sum(-1)
        difference = (kept @ v) / xp.where(weight > 0, weight, 1.0)[..., None] - out
        squares = (difference * difference).sum((-2, -1))
        lost = (weight == 0) & live.any(-1)
        for h, entries in enumerate(found):
            entries.append(
                {
                    "tiles": int(occupied.sum()),
                    "skipped": int(skip[h].sum()),
                    "lost": int(lost[h].sum()),
                    "error": math.sqrt(float(squares[h]) / norm[h]) if norm[h] and skip[h].any() else 0.0,
                }
            )
    return found


def padding(lengths: Sequence[int], seq: int) -> dict[str, float]:
    """What padding every sequence of a batch to ``seq`` wastes: shares (0 … 1) of tokens, which is that of
    all matrix products with weights, and of score elements. ValueError where a length is not within 1 …
    seq."""
    lengths = Parameter("lengths", "ints", low=1, high=seq).check(lengths)
    b = len(lengths)
    return {
        "tokens": 1 - sum(lengths) / (b * seq),
        "scores": 1 - sum(n * n for n in lengths) / (b * seq * seq),
    }


def _cut(p, tile: int, xp):
    """(…, queries, keys) as (…, tile rows, tile, tile columns, tile), zeros beyond the edges."""
    down, right = -p.shape[-2] % tile, -p.shape[-1] % tile
    if down or right:
        if xp is np:
            p = np.pad(p, [(0, 0)] * (p.ndim - 2) + [(0, down), (0, right)])
        else:
            p = xp.nn.functional.pad(p, (0, right, 0, down))
    rows, columns = p.shape[-2] // tile, p.shape[-1] // tile
    return p.reshape((*p.shape[:-2], rows, tile, columns, tile))


def _spread(tiles, tile: int, shape):
    """A value a tile as a value an element."""
    repeat = "repeat_interleave" if hasattr(tiles, "repeat_interleave") else "repeat"
    wide = getattr(getattr(tiles, repeat)(tile, -1), repeat)(tile, -2)
    return wide[..., : shape[-2], : shape[-1]]
