"""The kernel that a score expression is compiled into, for a call: found, compiled at first use, or refused
where nothing can be compiled."""

from __future__ import annotations

import time
from collections.abc import Callable

from fusescope import kernels
from fusescope.core.errors import Unsupported
from fusescope.core.machine.archs import arch_of
from fusescope.core.sources import families
from fusescope.kernels import expressed
from fusescope.ops.attention.dispatch import candidates, checks
from fusescope.ops.attention.score import score as scores


def compile_score(
    score,
    dtype,
    head_dim: int,
    device="cuda",
    impl: str = "auto",
    log: Callable[[str], None] | None = print,
) -> float:
    """Compile a score expression into the kernels that attention takes for it, and load them; gives the
    seconds that took. A call of attention does so by itself, but under CUDA graph capture.

    score: a Score, or the text of one without tensors. dtype: a torch.dtype or its name, head_dim: of the
    calls to come; impl: a kernel, or "auto" for each that "auto" may choose. log: is told what is compiled
    and how long it took (some 5 s a kernel; none where the build cache has it). Two processes that compile
    the same wait for each other.

    Raises ValueError, TypeError, Unsupported for a kernel that takes no expression, BuildError without a
    compiler.
    """
    import torch

    score, device = scores.of(score), torch.device(device)
    name = str(dtype).removeprefix("torch.")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    if not isinstance(getattr(torch, name, None), torch.dtype):
        raise TypeError(f"dtype is a torch.dtype or its name, not {dtype!r}")
    checks.one_dtype(torch, q=torch.empty(0, dtype=getattr(torch, name)))
    checks.heads_and_head_size(1, 1, head_dim)
    impls = (impl,) if impl != "auto" else _automatic(torch, device, name, head_dim)
    begin = time.monotonic()
    kernels.load(device.type, ("attention",), log=log)
    for one in impls:
        _refuse(one, device.type, device.index)
    expressed.load(
        [_wanted(score.header, one, device.type, device.index, name, head_dim) for one in impls], log
    )
    return time.monotonic() - begin


def kernel(header: str, impl: str, device_type: str, index: int | None, dtype: str, head_dim: int) -> str:
    """The name by which attention_expressed knows this kernel with the expression of a header, compiled where
    it is not yet; RuntimeError where that would be under CUDA graph capture."""
    import torch

    wanted = _wanted(header, impl, device_type, index, dtype, head_dim)
    if (name := expressed.loaded(wanted)) is not None:
        return name
    if device_type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "under CUDA graph capture a score expression must be compiled before: call "
            "fusescope.compile_score(score, dtype, head_dim, device), or attention once with this kernel"
        )
    _refuse(impl, device_type, index)
    return expressed.load([wanted])[0]


kernel._dynamo_marked_constant = True  # as in dispatch/tracing.py


def _automatic(torch, device, dtype: str, head_dim: int) -> tuple[str, ...]:
    """The kernels among which "auto" chooses: with a schedule and strides that TMA takes, and without."""
    if device.type == "cpu":
        return ("cpu",)
    found = []
    for both in (True, False):
        facts = (getattr(torch, dtype), head_dim, both, True, both, False, True, True)
        ladder = candidates.ladder(device.index, *facts)
        found += [ladder.rows, ladder.tiles]
    return tuple(dict.fromkeys(name for name in found if name))


def _wanted(header, impl, device_type, index, dtype, head_dim) -> expressed.Wanted:
    arch = arch_of(*candidates.capability(index)) if device_type == "cuda" else None
    return expressed.Wanted(header, impl, arch, dtype, head_dim)


def _refuse(impl: str, device_type: str, index: int | None) -> None:
    """Raise Unsupported where no such kernel takes an expression on this device."""
    taking = [v.name for v in families(("attention",))["attention"].variants if v.takes.expressed]
    if impl not in taking:
        raise Unsupported(f"{impl} takes no score expression; {', '.join(taking)} do")
    kernel = families(("attention",))["attention"].variant(impl)
    if kernel.device != device_type:
        raise Unsupported(f"{impl} is a kernel for {kernel.device}, and q is on {device_type}")
    if device_type == "cuda":
        candidates.refuse_architecture(impl, candidates.capability(index))
