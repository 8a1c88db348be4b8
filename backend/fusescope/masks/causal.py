"""A query sees itself and what came before."""

NAME = "causal"
FORMULA = "k ≤ q"
DESCRIPTION = "A query sees itself and the keys before it: decoders such as GPT."
PARAMETERS = ()
EVERY_ROW_LIVE = True


def predicate(q, k, p, batch):
    return k <= q
