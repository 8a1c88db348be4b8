"""The short way of a call: straight to the operator, past the checks and the choice in Python, which take
longer than a launch.

The operator checks everything that keeps memory safe, and "auto" is to it what was chosen for the last call
alike (cuda/common/handle.h, run). So a function tries the operator first where that went well before;
whatever it says, the long way says again in its own words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

REFUSALS = (
    AttributeError,
    KeyError,
    TypeError,
    RuntimeError,
)  # of an operator, and of what is read before it: take the long way


class Short(NamedTuple):
    """What the short way needs of torch; its lookups by name, ``import torch`` too, would be a tenth of the
    call. modes: how many dispatch modes look on: under a tracer (make_fx) the chosen kernel is to be
    recorded, not "auto"."""

    operator: Any
    is_compiling: Any
    modes: Any
    is_grad_enabled: Any


def short(op: str) -> Short:
    """Of a loaded operator. An overload's own __call__ only passes its arguments on to ``_op``."""
    import torch

    overload = getattr(torch.ops.fusescope, op).default
    return Short(
        getattr(overload, "_op", overload),
        torch.compiler.is_compiling,
        torch._C._len_torch_dispatch_stack,
        torch.is_grad_enabled,
    )


def asked(impl: str, chosen: str) -> str:
    """How the long way calls the operator: a choice made for "auto" is remembered there."""
    return f"auto={chosen}" if impl == "auto" else chosen


def empty_like(q, *others):
    """What the shape-only kernels return. A meta tensor among real ones brings real tensors here, too: those
    are refused."""
    if any(t is not None and t.device != q.device for t in others):
        raise RuntimeError("unsupported: tensors on several devices")
    return q.new_empty(q.shape)


def while_tracing(device_type: str) -> bool:
    """Loads the library so that the operator exists when torch.compile looks it up."""
    from fusescope import kernels

    kernels.load(device_type)
    return True


# What torch.compiler.assume_constant_result does, without importing torch here: run while tracing, not put
# into the graph.
while_tracing._dynamo_marked_constant = True
