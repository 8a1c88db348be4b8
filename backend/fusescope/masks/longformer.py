"""A band and the first few tokens, which see all and are seen by all."""

from fusescope.masks.common import defaults
from fusescope.masks.common.defaults import positions

NAME = "longformer"
FORMULA = "|q − k| ≤ window or q < global_tokens or k < global_tokens"
DESCRIPTION = (
    "A sliding window, and global tokens at the start that see all and are seen by all (Longformer)."
)
PARAMETERS = (
    positions("window", defaults.window, "keys kept on each side", "w", typical=(16, 32, 64, 128, 256, 512)),
    positions(
        "global_tokens",
        defaults.global_tokens,
        "positions at the start that see and are seen by all",
        "g",
        typical=(0, 1, 16, 32, 64, 128),
    ),
)
EVERY_ROW_LIVE = True


def predicate(q, k, p, batch):
    return (abs(q - k) <= p.window) | (q < p.global_tokens) | (k < p.global_tokens)
