"""Longformer's pattern and a few drawn blocks in each block row."""

import numpy as np

from fusescope.masks import longformer
from fusescope.masks.common import defaults
from fusescope.masks.common.draw import SEED_BITS, score
from fusescope.masks.common.parameter import Parameter

NAME = "bigbird"
FORMULA = "longformer or the block (q div block, k div block) is drawn"
DESCRIPTION = "Window, global tokens, and in each block row a few blocks drawn at random: the smallest scores (BigBird)."
PARAMETERS = (
    *longformer.PARAMETERS,
    Parameter(
        "random_blocks",
        "int",
        lambda seq: 3,
        "3",
        "blocks drawn in each block row",
        typical=(0, 1, 2, 3, 4, 8),
    ),
    Parameter(
        "block",
        "int",
        defaults.block,
        "64 (16 where S < 512)",
        "side of a drawn block",
        low=1,
        typical=(16, 32, 64, 128),
    ),
    Parameter(
        "seed",
        "int",
        lambda seq: 0,
        "0",
        "seed of the draws",
        high=(1 << SEED_BITS) - 1,
        typical=(0, 1, 2, 3),
    ),
)


def tables(values, seq_q, seq_k):
    """drawn: bool (block rows, block columns), the first row being that of the first query, which may stand
    before key 0."""
    block, first = values["block"], (seq_k - seq_q) // values["block"]
    rows, columns = np.arange(first, (seq_k - 1) // block + 1), np.arange((seq_k - 1) // block + 1)
    count = min(values["random_blocks"], len(columns))
    drawn = np.zeros((len(rows), len(columns)), bool)
    for i, row in enumerate(rows if count else ()):
        drawn[i, np.argpartition(score(values["seed"], row, columns), count - 1)[:count]] = True
    return {"drawn": drawn, "first_row": first}


def predicate(q, k, p, batch):
    return longformer.predicate(q, k, p, batch) | p.drawn[q // p.block - p.first_row, k // p.block]
