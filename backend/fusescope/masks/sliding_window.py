"""A band around the diagonal."""

from fusescope.masks.common import defaults
from fusescope.masks.common.defaults import positions

NAME = "sliding_window"
FORMULA = "−left ≤ k − q ≤ right"
DESCRIPTION = (
    "A query sees its neighbours, so many to the left and to the right; right = 0 makes it causal (Mistral)."
)
PARAMETERS = (
    positions(
        "left", defaults.window, "keys kept before the query", "w", typical=(16, 32, 64, 128, 256, 512)
    ),
    positions(
        "right", defaults.window, "keys kept after the query", "w", typical=(0, 16, 32, 64, 128, 256, 512)
    ),
)
EVERY_ROW_LIVE = True


def predicate(q, k, p, batch):
    distance = k - q
    return (distance >= -p.left) & (distance <= p.right)
