"""A band and the first few tokens, which see all and are seen by all."""

from fusescope.masks.common import defaults
from fusescope.masks.common.parameter import Parameter

NAME = "longformer"
FORMULA = "|q − k| ≤ window or q < global_tokens or k < global_tokens"
DESCRIPTION = (
    "A sliding window, and global tokens at the start that see all and are seen by all (Longformer)."
)
PARAMETERS = (
    Parameter(
        "window", "int", defaults.window, "w", "keys kept on each side", typical=(16, 32, 64, 128, 256, 512)
    ),
    Parameter(
        "global_tokens",
        "int",
        defaults.global_tokens,
        "g",
        "positions at the start that see and are seen by all",
        typical=(0, 1, 16, 32, 64, 128),
    ),
)


def predicate(q, k, p, batch):
    return (abs(q - k) <= p.window) | (q < p.global_tokens) | (k < p.global_tokens)
