"""This project's attention on 16-bit operands, as a peer of operators on others."""

from __future__ import annotations

from fusescope.ops.attention.dispatch.choice import choose
from fusescope.ops.attention.functional import attention


def sixteen_bits(inputs):
    q, k, v, plan = inputs["q"], inputs["k"], inputs["v"], inputs["plan"]

    def run():
        return attention(q, k, v, plan)

    run.backend = choose(q, k, v, plan)
    return run
