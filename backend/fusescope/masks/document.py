"""Several documents packed into one sequence: blocks on the diagonal."""

import numpy as np

from fusescope.core.schema import Parameter
from fusescope.masks.common.defaults import LARGEST

NAME = "document"
FORMULA = "q and k in the same document (and k ≤ q where causal)"
DESCRIPTION = (
    "Documents packed one after another; a query sees only its own. Positions after the last document "
    "belong to none. Lengths may differ per sequence of the batch: 3+5/4+4."
)


def _quarters(seq):
    """Four parts as equal as they can be: the first S mod 4 of them are one longer."""
    return tuple(seq // 4 + (i < seq % 4) for i in range(4))


PARAMETERS = (
    Parameter(
        "lengths",
        "ints/",
        _quarters,
        "length of each document, such as 3+5+9; one list per sequence as 3+5/4+4",
        0,
        LARGEST,
        default_help="4 equal parts",
    ),
    Parameter("causal", "bool", False, "whether a query sees only what came before it in its document"),
)
EVERY_ROW_LIVE = True


def sequences(values):
    lengths = values.get("lengths", ())
    return len(lengths) if lengths and isinstance(lengths[0], tuple) else None


def tables(values, seq_q, seq_k):
    """ids: int32 (sequences or 1, positions), the document at each position from that of the first query or
    key; −1 for none."""
    lengths = values["lengths"] if sequences(values) else (values["lengths"],)
    first = min(0, seq_k - seq_q)
    ids = np.full((len(lengths), seq_k - first), -1, np.int32)
    for sequence, parts in enumerate(lengths):
        if sum(parts) > seq_k:
            raise ValueError(
                f"the documents of a sequence have at most its {seq_k} positions together, not {sum(parts)}"
            )
        ids[sequence, -first : sum(parts) - first] = np.repeat(np.arange(len(parts)), parts)
    return {"ids": ids, "first": first}


def predicate(q, k, p, batch):
    of_query = p.ids[batch, q - p.first]
    same = (of_query == p.ids[batch, k - p.first]) & (of_query >= 0)
    return same & (k <= q) if p.causal else same
