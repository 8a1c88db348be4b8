"""A prefix that all see, causal after it."""

from fusescope.masks.common.defaults import positions

NAME = "prefix_lm"
FORMULA = "k ≤ q or k < prefix"
DESCRIPTION = "Every query sees the whole prefix; after it, causal (T5's and UniLM's prefix language model)."
PARAMETERS = (
    positions(
        "prefix",
        lambda seq: seq // 4,
        "keys that every query sees",
        "S / 4",
        typical=(0, 32, 64, 128, 256, 512),
    ),
)
EVERY_ROW_LIVE = True


def predicate(q, k, p, batch):
    return (k <= q) | (k < p.prefix)
