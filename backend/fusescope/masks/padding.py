"""Sequences of different length padded to one: the padding is not seen."""

import numpy as np

from fusescope.core.schema import Parameter
from fusescope.masks.common.defaults import LARGEST

NAME = "padding"
FORMULA = "k < length of the sequence"
DESCRIPTION = (
    "Each sequence of the batch has its own length; keys after it are not seen. Rows after it see the kept "
    "keys too."
)
PARAMETERS = (
    Parameter(
        "lengths",
        "ints",
        help="real length of each sequence of the batch, such as lengths=3+5+9",
        low=0,
        high=LARGEST,
    ),
)
EVERY_ROW_LIVE = True


def sequences(values):
    return len(values["lengths"])


def tables(values, seq_q, seq_k):
    if max(values["lengths"]) > seq_k:
        raise ValueError(
            f"the lengths of a padding mask are at most the {seq_k} keys, not {max(values['lengths'])}"
        )
    return {"lengths": np.asarray(values["lengths"], np.int32)}


def predicate(q, k, p, batch):
    return (q == q) & (k < p.lengths[batch])
