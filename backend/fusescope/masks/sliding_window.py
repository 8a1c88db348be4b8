"""A band around the diagonal."""

from fusescope.masks.common import defaults
from fusescope.masks.common.parameter import Parameter

NAME = "sliding_window"
FORMULA = "−left ≤ k − q ≤ right"
DESCRIPTION = (
    "A query sees its neighbours, so many to the left and to the right; right = 0 makes it causal (Mistral)."
)
PARAMETERS = (
    Parameter(
        "left", "int", defaults.window, "w", "keys kept before the query", typical=(16, 32, 64, 128, 256, 512)
    ),
    Parameter(
        "right",
        "int",
        defaults.window,
        "w",
        "keys kept after the query",
        typical=(0, 16, 32, 64, 128, 256, 512),
    ),
)


def predicate(q, k, p, batch):
    distance = k - q
    return (distance >= -p.left) & (distance <= p.right)
