"""What torch.compile asks while it traces a call: the work of a kernel in parts, found by the plan's key, as
a constant of the graph.

A work is made by NumPy and torch together for one number of heads in all, so it cannot be traced, and
compiled code is for that number.
"""

from __future__ import annotations

from fusescope.ops.attention.plan import plan as plans
from fusescope.ops.attention.work import parts


def _work(key: str, batch: int, heads: int, head_dim: int) -> parts.Work:
    return parts.of(plans.of_key(key), batch, heads, head_dim)


def gains(key: str, batch: int, heads: int, head_dim: int, at_least: float) -> bool:
    return _work(key, batch, heads, head_dim).gain >= at_least


def buffer(key: str, batch: int, heads: int, head_dim: int):
    return _work(key, batch, heads, head_dim).buffer


def layout(key: str, batch: int, heads: int, head_dim: int) -> str:
    return _work(key, batch, heads, head_dim).layout


# What torch.compiler.assume_constant_result does, without importing torch here: run while tracing, not put
# into the graph.
for _asked in (gains, buffer, layout):
    _asked._dynamo_marked_constant = True
