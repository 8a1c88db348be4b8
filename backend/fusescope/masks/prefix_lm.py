"""A prefix that all see, causal after it."""

from fusescope.masks.common.parameter import Parameter

NAME = "prefix_lm"
FORMULA = "k ≤ q or k < prefix"
DESCRIPTION = "Every query sees the whole prefix; after it, causal (T5's and UniLM's prefix language model)."
PARAMETERS = (
    Parameter(
        "prefix",
        "int",
        lambda seq: seq // 4,
        "S / 4",
        "keys that every query sees",
        typical=(0, 32, 64, 128, 256, 512),
    ),
)


def predicate(q, k, p, batch):
    return (k <= q) | (k < p.prefix)
