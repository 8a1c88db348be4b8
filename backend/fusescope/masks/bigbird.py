"""Longformer's pattern and a few drawn blocks in each block row."""

import numpy as np

from fusescope.masks import longformer
from fusescope.masks.common import defaults
from fusescope.masks.common.defaults import positions
from fusescope.masks.common.draw import SEED, score

NAME = "bigbird"
FORMULA = "longformer or the block (q div block, k div block) is drawn"
DESCRIPTION = (
    "Window, global tokens, and a few blocks per block row drawn at random: the smallest scores (BigBird)."
)
PARAMETERS = (
    *longformer.PARAMETERS,
    positions("random_blocks", 3, "blocks drawn in each block row", typical=(0, 1, 2, 3, 4, 8)),
    positions(
        "block",
        defaults.block,
        "side of a drawn block",
        "64 (16 where S < 512)",
        low=1,
        typical=(16, 32, 64, 128),
    ),
    SEED,
)
EVERY_ROW_LIVE = True
_CELLS = 1 << 20  # drawn together


def tables(values, seq_q, seq_k):
    """drawn: bool (block rows, block columns), the first row being that of the first query, which may stand
    before key 0."""
    block, first = values["block"], (seq_k - seq_q) // values["block"]
    rows, columns = np.arange(first, (seq_k - 1) // block + 1), np.arange((seq_k - 1) // block + 1)
    count = min(values["random_blocks"], len(columns))
    drawn = np.zeros((len(rows), len(columns)), bool)
    step = max(1, _CELLS // len(columns))
    for i in range(0, len(rows) if count else 0, step):
        scores = score(values["seed"], rows[i : i + step, None], columns)
        np.put_along_axis(drawn[i : i + step], np.argpartition(scores, count - 1)[:, :count], True, 1)
    return {"drawn": drawn, "first_row": first}


def predicate(q, k, p, batch):
    return longformer.predicate(q, k, p, batch) | p.drawn[q // p.block - p.first_row, k // p.block]
