"""Single elements drawn at random."""

from fusescope.masks.common.draw import SEED_BITS, below, score
from fusescope.masks.common.parameter import Parameter

NAME = "random"
FORMULA = "splitmix64(seed · 2⁴⁰ + q · 2²⁰ + k) / 2⁶⁴ < density"
DESCRIPTION = "Every element is kept or not by a draw of its own: the hardest case for tiles."
PARAMETERS = (
    Parameter(
        "density",
        "float",
        lambda seq: 0.1,
        "0.1",
        "share of elements kept",
        high=1.0,
        typical=(0.01, 0.05, 0.1, 0.2, 0.5),
    ),
    Parameter(
        "seed",
        "int",
        lambda seq: 0,
        "0",
        "seed of the draws",
        high=(1 << SEED_BITS) - 1,
        typical=(0, 1, 2, 3),
    ),
)


def predicate(q, k, p, batch):
    return below(score(p.seed, q, k), p.density)
