"""What describes an operator and its implementations without torch, so that pages and the command line can
list them.

An operator is one module of backend/fusescope/ops (see ``PARTS``): data at module level, and functions that
import torch inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PARTS = (
    "NAME",
    "TITLE",
    "SUMMARY",
    "FAMILY",
    "PARAMETERS",
    "DTYPES",
    "TOLERANCE",
    "PEERS",
    "validate",
    "inputs",
    "arguments",
    "call",
    "reference",
    "cost",
)
"""What a module of backend/fusescope/ops must define:

NAME        "softmax", the module's own name and the word on the command line
TITLE       "Softmax", for people; SUMMARY one sentence with the formula
FAMILY      the folder under cuda/ that holds our kernels
PARAMETERS  tuple[core.schema.Parameter, ...]: the keys of a case, in the order shown
DTYPES      tuple of names out of core.records.DTYPES
TOLERANCE   {dtype: Tolerance}
PEERS       {name: Peer}: what a user could pick instead; "eager" first and always there
validate(values) -> dict            complete case (defaults filled in, derived values too); ValueError: rule,
                                    value, what is supported
inputs(values, dtype, device, seed, contiguous=True) -> dict[str, Any]     fresh random inputs;
contiguous=False: same values
                                    of the same shape behind other strides and a storage offset
arguments(inputs) -> (args, kwargs) the inputs as the operator's Python signature takes them (user callables
are called so)
call(inputs, impl) -> Tensor        our operator with the named implementation (a kernel's name, or "auto")
reference(inputs) -> Tensor         the specification, in float64 (plain torch, any device)
cost(values, dtype) -> Cost         FLOP and bytes, torch-free
<NAME>(...)                         the public Python function, e.g. softmax(x, *, impl="auto")

What it may define besides:

tolerance(values, dtype) -> Tolerance   where the allowed error depends on the case (a sum over k terms);
                                        TOLERANCE is then that of a typical case. Callers ask
                                        ops.tolerance(op, values, dtype), which takes both into account
deviation(inputs) -> Tensor             where the error of an element depends on its inputs: the standard
                                        deviation of each, of the reference's shape; seven of them are allowed
                                        where that is more than the tolerance's absolute part
joined(result) -> Tensor                where the function returns several tensors: the one to compare,
                                        which is also what reference gives; what is no such result it returns
                                        as it is
OPERANDS                                the dtype in which our kernels multiply, where it is not the case's:
                                        peers of an fp8 operator take 16-bit operands
WRITES                                  names of inputs that a call writes in place (a KV cache); joined then
                                        holds them too
prepared(inputs, impl) -> (ms, bytes)   what is held ready for a kernel outside a call (a plan of a mask): how
                                        long it took to build and its size on the device; a peer sets
                                        run.setup_ms, run.setup_bytes and run.compile_ms instead
auto(inputs) -> str                     the kernel that impl="auto" means for these inputs; without it
                                        kernels.choose(FAMILY, device)
"""


@dataclass(frozen=True)
class Tolerance:
    """An element passes when |out - ref| <= absolute + relative * |ref|; ``reason`` says where the figures
    come from. ``norm``, where it is set: besides, the norm of out - ref is at most norm times that of ref.
    ``own``: a tensor with a number for each element, in the result's order, which counts instead of
    ``absolute`` where it is larger (``Module.deviation``)."""

    absolute: float
    relative: float
    reason: str = ""
    norm: float | None = None
    own: Any = field(default=None, compare=False)

    def allowed(self, size, start: int = 0):
        """The differences that consecutive elements of these sizes |ref| may have; start: the place of the
        first one."""
        if self.own is None:
            return self.absolute + self.relative * size
        own = self.own[start : start + size.numel()].to(size.device).double()
        own = own.nan_to_num(0.0, posinf=0.0)  # what is not known allows nothing
        return own.clamp_min(self.absolute) + self.relative * size


@dataclass(frozen=True)
class Cost:
    """FLOP over live work (effective) and over what tiles execute (executed; equal for dense operators), and
    least bytes moved. ``flop_dense``: of a call that skips nothing; None where there is nothing to skip.

    ``unit`` names the arithmetic peak that applies: "matrix" (tensor cores where the dtype has them) or
    "vector". ``peaks``: how many times that peak of the dtype the work may reach, 2 where products have
    operands of half as many bits.
    """

    flop_effective: float
    flop_executed: float
    bytes_read: float
    bytes_written: float
    unit: str = "vector"
    notes: Mapping[str, Any] = field(default_factory=dict)
    flop_dense: float | None = None
    peaks: float = 1.0

    @property
    def size(self) -> tuple[float, float, float]:
        """FLOP executed, bytes and dense FLOP of a call, which estimates go by."""
        dense = self.flop_executed if self.flop_dense is None else self.flop_dense
        return self.flop_executed, self.bytes, dense

    @property
    def bytes(self) -> float:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True)
class Peer:
    """Something else that computes the operator. ``make(inputs) -> run`` builds everything that is not part
    of a call (a BlockMask, a compiled function) and returns a callable without arguments. Views of inputs are
    made in every call: their buffers move between rounds (measure.timing.placement). ``run.backend``, if
    set, says what really ran. ``run.finish(out)``, if set, brings a result to the reference's form (unpadded,
    say); it belongs to the check, not to the call. ``run.one_call_per_graph``, if true: a CUDA graph is to
    hold a single call. May raise core.errors.Unsupported. ``devices``: device
    types it exists on. ``compiles``: seconds by device type that making it for one more case takes, for what
    runs a compiler; a first guess for analysis.estimate. ``skips``: whether it leaves out what a mask hides
    altogether; it says how long a call may take. ``package``: the distribution that it comes with, where
    PyTorch does not bring it."""

    make: Callable[[Mapping[str, Any]], Callable[[], Any]]
    idea: str
    devices: tuple[str, ...] = ("cpu", "cuda")
    compiles: Mapping[str, float] = field(default_factory=dict)
    skips: bool = False
    package: str | None = None


@dataclass(frozen=True)
class Implementation:
    """One line of the implementation list. kind: "ours", "peer" or "user"; reason: why it cannot run here,
    else None."""

    name: str
    kind: str
    idea: str
    devices: tuple[str, ...]
    source: str | None = None
    source_hash: str | None = None
    reason: str | None = None
