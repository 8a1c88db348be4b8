"""Remembered calls: attention functions hand a call like an earlier one straight to the operator.

Checks and the choice of a kernel take longer in Python than a launch does. So the arguments that they end in
are remembered by what they depend on in Python: implementation, mask or plan, shapes of q and k, device,
whether there is a bias, and the sign of the scale. The operator checks everything else about a call, and
for "auto" compares its whole signature, strides and alignment too, with that of the call for which the kernel
was chosen (cuda/common/handle.h). Where it refuses, the function checks the call in words and chooses again.
"""

from __future__ import annotations

import weakref
from typing import Any

REFUSALS = (AttributeError, TypeError, ValueError, RuntimeError)
"""What a remembered call raises for arguments that are no tensors, of other types, empty, or refused by the
operator."""
_LIMIT = 256  # remembered calls of one mask; at more all are forgotten, so that reading needs no lock


class Dispatch:
    """The remembered calls of one operator, which go with their mask or plan.

    unmasked: what ``remember`` was given of calls without a mask, by key; masked: the same by id of the mask
    or plan. Used where operator is there, and neither torch.compile (is_compiling) nor a dispatch mode such
    as make_fx (modes) looks on: those are to see the name of the kernel; nor where the call may be
    differentiated in a way that requires_grad does not say (transformed).
    """

    def __init__(self, op: str):
        self.op = op
        self.operator: Any = (
            None  # once it is loaded; its overload's __call__ only passes arguments on to this
        )
        # torch's, likewise
        self.is_grad_enabled = self.is_compiling = self.modes = self.transformed = lambda: True
        self.unmasked: dict[Any, Any] = {}
        self.masked: dict[int, dict[Any, Any]] = {}

    def is_loaded(self) -> bool:
        return self.operator is not None

    is_loaded._dynamo_marked_constant = True  # no guard: a graph made before the first call serves after it

    def remember(self, mask, key, arguments) -> None:
        """What the operator is given besides tensors and implementation in a call that went well. The calls
        of a mask or plan are forgotten when it is gone."""
        calls = self.unmasked if mask is None else self.masked.get(id(mask))
        if calls is None:
            calls = self.masked.setdefault(id(mask), {})
            weakref.finalize(mask, self.masked.pop, id(mask), None).atexit = False
        if len(calls) >= _LIMIT:
            calls.clear()
        calls[key] = arguments

    def call(self, *args, impl: str, chosen: str, more: tuple = ()):
        """Run the chosen kernel, loading the library if need be; for impl "auto" the operator remembers the
        choice. Raises as ``kernels.call`` does."""
        from fusescope import kernels

        out = kernels.call(self.op, *args, impl=f"auto={chosen}" if impl == "auto" else chosen, more=more)
        if self.operator is None:
            self._load()
        return out

    def _load(self) -> None:
        import torch

        overload = getattr(torch.ops.fusescope, self.op).default
        self.is_grad_enabled = torch.is_grad_enabled
        self.is_compiling = torch.compiler.is_dynamo_compiling
        self.modes = torch._C._len_torch_dispatch_stack
        forward_ad, level = torch.autograd.forward_ad, torch._C._functorch.peek_interpreter_stack
        self.transformed = lambda: forward_ad._current_level >= 0 or level() is not None
        self.operator = getattr(overload, "_op", overload)


def is_refusal(error: Exception) -> bool:
    """Whether the operator or a kernel said that it does not take a call, so that another kernel may."""
    return isinstance(error, RuntimeError) and "unsupported: " in str(error)


def empty_like(q, *others):
    """What the shape-only kernels return. A meta tensor among real ones brings real tensors here, too: those
    are refused."""
    if any(t is not None and t.device != q.device for t in others):
        raise RuntimeError("unsupported: tensors on several devices")
    return q.new_empty(q.shape)
