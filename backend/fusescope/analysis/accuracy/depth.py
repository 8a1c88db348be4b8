"""Errors along the depth of a model: what is acceptable at each place, and where two runs first diverge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fusescope.analysis.accuracy.errors import unit_roundoff

CONSTANTS = {"float64": 12.0, "float32": 12.0, "float16": 3.0, "bfloat16": 3.0}
"""How many unit roundoffs one rounded result may add to the relative error of what follows. In half precision
products are summed in float32 and rounded once; float32 sums in itself, which adds a roundoff a few times
over. Correct models stay below half of the limit that follows; a wrong mask, scale or layer is off by
hundreds of roundoffs."""
AGAINST_EAGER = 2.0
"""A fused implementation in a reduced dtype may err this many times as much as the eager one in the same
dtype."""
# roundings: below this no threshold falls, so that a model's first modules are not failed by a single one
_FLOOR = 9.0


def limit(dtype: str, roundings: int) -> float:
    """The largest acceptable relative error ‖out − ref‖₂ / ‖ref‖₂ after that many rounded results in a row.

    Rounding errors of a long computation are as good as independent, so they add up with the square root of
    their number (Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci.
    Comput. 41(5), 2019).
    """
    if roundings < 0:
        raise ValueError(f"a number of roundings is at least 0, not {roundings}")
    return CONSTANTS[dtype] * unit_roundoff(dtype) * math.sqrt(max(roundings, _FLOOR))


def reason(dtype: str) -> str:
    """Why the limit of that dtype is what it is, as one sentence."""
    bits = round(-math.log2(unit_roundoff(dtype)))
    return (
        f"{CONSTANTS[dtype]:g} · u · √n after n rounded results, u = 2^-{bits} being {dtype}'s "
        "unit roundoff: independent rounding errors add up with the square root of their number"
    )


def with_limits(rows: Sequence[Mapping[str, Any]], dtype: str) -> list[dict[str, Any]]:
    """The rows with "limit" and "accepted" added. A row has "relative_l2" (None: infinite), "unequal" and
    "roundings"."""
    found = []
    for row in rows:
        allowed = limit(dtype, int(row["roundings"]))
        error = row["relative_l2"]
        found.append(
            {
                **row,
                "limit": allowed,
                "accepted": not row["unequal"] and error is not None and error <= allowed,
            }
        )
    return found


def first_divergence(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """The index of the first row, in order of execution, that is not accepted; None where all are."""
    return next((i for i, row in enumerate(rows) if not row["accepted"]), None)


def first_difference(
    a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]], factor: float = 4.0
) -> str | None:
    """The name of the first module whose error in one run is more than ``factor`` times that in the other,
    None where none is.

    Rows of modules that only one of the runs has are passed over, and so are errors of less than a quarter of
    what is acceptable there in both dtypes: rounding differs from run to run as it likes.
    """
    others = {row["name"]: row for row in b}
    for row in a:
        other = others.get(row["name"])
        if other is None:
            continue
        x, y = (math.inf if r["relative_l2"] is None else r["relative_l2"] for r in (row, other))
        low, high = sorted((x, y))
        if high > factor * low and high > min(row["limit"], other["limit"]) / 4:
            return row["name"]
    return None


def against_eager(error: float, eager: float, dtype: str) -> bool:
    """Whether a whole model's error is at most AGAINST_EAGER times that of the eager form; below one unit
    roundoff any is."""
    return error <= max(AGAINST_EAGER * eager, unit_roundoff(dtype))
