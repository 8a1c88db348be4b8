"""Cases of the sparse operators."""

from __future__ import annotations

from fusescope import ops
from tests.emulator.cases import Case, Emulation, through_function

MASKED = (
    {"seq": 1, "head_dim": 1, "mask": "full"},
    {
        "seq": 7,
        "seq_k": 100,
        "head_dim": 8,
        "mask": "random:density=0.4",
    },  # 280 elements: several runs of a warp
    {"seq": 33, "head_dim": 64, "mask": "causal", "heads": 2},
    {"seq": 40, "seq_k": 9, "head_dim": 72, "mask": "random:density=0.02"},  # rows without elements
    {"seq": 5, "seq_k": 700, "head_dim": 40, "mask": "full"},  # rows that a block shares
    {"seq": 66, "head_dim": 128, "mask": "longformer:window=2,global_tokens=1"},
    {"seq": 3, "seq_k": 530, "head_dim": 200, "mask": "fixed:block=64,summary=63"},
    {"seq": 4, "seq_k": 6, "head_dim": 300, "mask": "full"},  # more than one panel
    {"seq": 20, "head_dim": 33, "mask": "sliding_window:left=3,right=0", "batch": 2, "heads": 3},
    {"seq": 6, "mask": "random:density=0.0", "head_dim": 16},
)
BLOCKS = (
    {"seq": 20, "seq_k": 50, "head_dim": 40, "mask": "random:density=0.05", "format": "bsr16"},
    {"seq": 70, "seq_k": 33, "head_dim": 70, "mask": "causal", "format": "bsr32", "heads": 2},
    {"seq": 65, "seq_k": 130, "head_dim": 8, "mask": "sliding_window:left=3,right=3", "format": "bsr64"},
    {"seq": 33, "mask": "random:density=0.0", "head_dim": 16, "format": "bsr16"},
)
GRAPHS = (
    {"seq": 1, "heads": 1, "head_dim": 1, "mask": "full"},
    {"seq": 50, "heads": 3, "head_dim": 8, "mask": "random:density=0.05"},  # some nodes have no neighbour
    {"seq": 70, "heads": 2, "head_dim": 72, "mask": "longformer:window=3,global_tokens=2"},
    {"seq": 33, "heads": 1, "head_dim": 130, "mask": "causal"},
    {"seq": 20, "heads": 2, "head_dim": 256, "mask": "sliding_window:left=2,right=1"},
    {"seq": 40, "heads": 5, "head_dim": 7, "mask": "random:density=0.3"},
)


def _of(op: str, tables):
    """A kernel of one format refuses the other's cases."""
    known = {p.name for p in ops.load(op).PARAMETERS}

    def cases(impl):
        for values in tables:
            values = {"batch": 1, "heads": 1} | values
            yield Case({name: value for name, value in values.items() if name in known}, 2)

    return Emulation(cases, through_function)


EMULATIONS = {
    "sddmm": _of("sddmm", MASKED + BLOCKS),
    "spmm": _of("spmm", MASKED + BLOCKS),
    "sparse_softmax": _of("sparse_softmax", MASKED),
    "gat": _of("gat", GRAPHS),
}
