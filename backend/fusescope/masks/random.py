"""Single elements drawn at random."""

from fusescope.core.schema import Parameter
from fusescope.masks.common.draw import SEED, below, score

NAME = "random"
FORMULA = "splitmix64(seed · 2⁴⁰ + q · 2²⁰ + k) / 2⁶⁴ < density"
DESCRIPTION = "Every element is kept or not by a draw of its own: the hardest case for tiles."
PARAMETERS = (
    Parameter("density", "float", 0.1, "share of elements kept", 0, 1, (0.01, 0.05, 0.1, 0.2, 0.5)),
    SEED,
)


def predicate(q, k, p, batch):
    return below(score(p.seed, q, k), p.density)
