"""What softmax over dense and over sparse rows have in common: dtypes, how exact it must be, and what it
costs."""

from __future__ import annotations

from fusescope.ops.base import Cost, Tolerance
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF

DTYPES = ("float32", "float16", "bfloat16")
_WHY = (
    "x - max, |x - max| < 16 for normal inputs: 16 u; exp: up to 2 + 1.2 |x| ulp (CUDA's __expf), 42 "
    "u; sum and quotient: 6 u; "
    "u = 2^-24, 64 u together"
)
TOLERANCE = {
    "float32": Tolerance(1e-12, 64 * 2.0**-24, _WHY),
    "float16": Tolerance(
        2.0**-25 * 1.01, 1.01 * UNIT_ROUNDOFF["float16"], _WHY + "; one rounding, subnormal below 2^-14"
    ),
    "bfloat16": Tolerance(1e-12, 1.01 * UNIT_ROUNDOFF["bfloat16"], _WHY + "; one rounding"),
}


def cost_of(elements: int, dtype: str) -> Cost:
    """Five operations per element, which is read once and written once."""
    flop, size = 5.0 * elements, elements * BYTES[dtype]
    return Cost(flop, flop, size, size, notes={"flop an element": "max, subtract, exp, add, scale"})
