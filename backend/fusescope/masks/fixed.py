"""The own block and the summary columns of earlier ones."""

from fusescope.masks.common import defaults
from fusescope.masks.common.defaults import positions

NAME = "fixed"
FORMULA = "k ≤ q and (q div block = k div block or k mod block ≥ block − summary)"
DESCRIPTION = (
    "Causal: the keys of the own block and the last few of every earlier block (Sparse Transformer, fixed)."
)
PARAMETERS = (
    positions("block", defaults.window, "positions in a block", "w", low=1, typical=(16, 32, 64, 128, 256)),
    positions(
        "summary",
        lambda seq: defaults.window(seq) // 8,
        "last positions of a block that all later queries see",
        "w / 8",
        typical=(1, 2, 4, 8, 16, 32),
    ),
)
EVERY_ROW_LIVE = True


def predicate(q, k, p, batch):
    return (k <= q) & ((q // p.block == k // p.block) | (k % p.block >= p.block - p.summary))


def parts(p):
    """The own block, and the summaries of earlier ones, which lie side by side when keys are in
    strided-permuted order."""

    def own(q, k, p, batch):
        return (k <= q) & (q // p.block == k // p.block)

    def earlier(q, k, p, batch):
        return (k // p.block < q // p.block) & (k % p.block >= p.block - p.summary)

    return (1, 1, own), (1, p.block, earlier)
