"""What torch.compile learns while it traces a call, as constants of the graph: files, plans and work items
cannot be traced.

Work items are for one number of heads in all, and so is compiled code that has them.
"""

from __future__ import annotations

from fusescope.ops.attention.dispatch import candidates, kernel_sources
from fusescope.ops.attention.plan import plan as plans
from fusescope.ops.attention.work import parts


def load(device_type: str, family: str) -> bool:
    """Loads a family's library, so that the operator exists when torch.compile looks it up."""
    from fusescope import kernels

    kernels.load(device_type, (family,))
    return True


def exporting() -> bool:
    """Whether torch.export traces. torch.compile of PyTorch 2.11 takes torch.compiler.is_exporting() for True
    in code that it traces."""
    import torch

    return torch.compiler.is_exporting()


def group(impl: str) -> int | None:
    return kernel_sources.group(impl)


def ladder(*facts, **more) -> tuple:
    return tuple(candidates.ladder(*facts, **more))


def last_that_takes(*facts, **more) -> str:
    return candidates.last_that_takes(*facts, **more)


def that_takes(*facts, **more) -> str | None:
    return candidates.that_takes(*facts, **more)


def least_rows(*facts, **more) -> int:
    return candidates.least_rows(*facts, **more)


def that_takes_a_new_token(*facts) -> str | None:
    return candidates.that_takes_a_new_token(*facts)


def gain(key: str, batch: int, heads: int, head_dim: int, group: int) -> float:
    return parts.of(plans.of_key(key), batch, heads, head_dim, group=group).gain


def buffer(key: str, batch: int, heads: int, head_dim: int, group: int):
    return parts.of(plans.of_key(key), batch, heads, head_dim, group=group).buffer


def layout(key: str, batch: int, heads: int, head_dim: int, group: int) -> str:
    return parts.of(plans.of_key(key), batch, heads, head_dim, group=group).layout


def refuse_an_unprepared_mask() -> bool:
    raise RuntimeError(
        "under torch.compile a mask must be prepared: pass prepare(mask, seq_q, seq_k, device), made outside"
    )


def refuse_work_items_without_a_plan() -> bool:
    raise RuntimeError(
        "under torch.compile a kernel in parts needs a plan, also of every key: "
        "pass prepare(None, seq_q, seq_k, device)"
    )


# What torch.compiler.assume_constant_result does, without importing torch here: run while tracing, not put
# into the graph. An exception in such a function ends the compilation; raised in traced code it would only be
# a graph break.
for _constant in (
    exporting,
    load,
    group,
    ladder,
    last_that_takes,
    that_takes,
    least_rows,
    that_takes_a_new_token,
    gain,
    buffer,
    layout,
    refuse_an_unprepared_mask,
    refuse_work_items_without_a_plan,
):
    _constant._dynamo_marked_constant = True
