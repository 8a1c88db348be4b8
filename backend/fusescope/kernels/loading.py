"""Loading the libraries into torch and calling the operators.

A process loads each library once and stays with it: code that ran cannot be unloaded from torch. Jobs
therefore run in a fresh process each, and ``load`` says so where the sources have changed since.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from fusescope.core.errors import BuildError, Unsupported
from fusescope.core.machine import toolchain
from fusescope.core.machine.archs import arch_of
from fusescope.core.sources import families
from fusescope.kernels import plan, report
from fusescope.kernels.build import build, default_archs
from fusescope.kernels.fakes import register_given

_loaded: dict[
    str, tuple[tuple[str, ...], frozenset[str]]
] = {}  # unit: architectures and content keys of what this process runs
_calls: dict[tuple[str, str], Callable] = {}  # (operator, device type): the overload
_auto: dict[tuple[str, str, int | None], str] = {}


def load(
    device_type: str,
    log: Callable[[str], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> None:
    """Build what is missing and load the library: the CPU one always (it holds the schemas), the CUDA one for
    "cuda". ``log``, ``cancelled`` and ``progress`` are those of ``build``.

    Raises BuildError where it cannot be built, or where the sources have changed since this process loaded
    them; Unsupported for "cuda" without a usable GPU.
    """
    if device_type not in ("cpu", "cuda"):
        raise ValueError(f"a device type is cpu or cuda, not {device_type!r}")
    import torch

    if device_type == "cuda" and not torch.cuda.is_available():
        raise Unsupported(
            f"no CUDA device: torch {torch.__version__} sees no usable GPU (fusescope doctor says why)"
        )
    for unit in ("cpu", "cuda") if device_type == "cuda" else ("cpu",):
        if unit in _loaded:
            _check_unchanged(unit)
        else:
            _load_unit(torch, unit, log or _quiet, cancelled, progress)


def call(op: str, *args: Any, impl: str, more: tuple = ()) -> Any:
    """torch.ops.fusescope.<op>(*args, impl, *more) on the device of the first tensor; "auto" is what
    ``choose`` says.

    Raises Unsupported with the reason where the kernel does not take these arguments, ValueError for an
    unknown operator or implementation, BuildError where the kernel failed to build.
    """
    tensor = args[0]
    device = tensor.device
    kind = device.type
    try:
        function = _calls[op, kind]
    except KeyError:
        function = _resolve(op, kind)
    if impl == "auto":
        impl = _auto_impl(op, kind, device.index)
    try:
        return function(*args, impl, *more)
    except RuntimeError as error:
        text = str(error)
        if "unsupported: " in text:
            raise _unsupported(op, kind, impl, text) from None
        raise


def choose(family: str, device_type: str) -> str:
    """The kernel that "auto" stands for where nothing better is known: the last of the ladder that is built
    and that the GPU ("cuda" or "cuda:1") runs; of swept variants of one file the first. On the CPU "cpu", or
    the last CPU kernel."""
    kind, _, index = device_type.partition(":")
    found = families().get(family)
    if found is None:
        raise ValueError(f"there is no kernel family {family!r}; known: {', '.join(families())}")
    candidates = [v for v in found.variants if v.device == kind]
    if kind == "cuda":
        arch = _arch_of_device(int(index) if index else None)
        candidates = [v for v in candidates if plan.claims(v, arch)]
    states = report.state().get(family, {})
    candidates = [v for v in candidates if states.get(v.name, {}).get("status") not in ("failed",)]
    if not candidates:
        raise Unsupported(f"{family} has no kernel for {device_type} that is built")
    last = candidates[-1]
    if kind == "cpu":
        last = next((v for v in candidates if v.name == "cpu"), last)
    return next(v.name for v in candidates if v.path == last.path)


def _load_unit(torch, unit: str, log, cancelled, progress) -> None:
    chain = toolchain.detect()
    archs = _load_archs(chain) if unit == "cuda" else ()
    if unit == "cuda" and chain.nvcc is None:
        raise BuildError(
            "nvcc, the CUDA compiler, is missing: the CUDA kernels cannot be built (fusescope doctor)"
        )
    found = report.assemble(chain, archs, (unit,))
    if found is None or any(v.status == "not built" for v in found.variants) or unit not in found.libraries:
        found = build(archs or None, False, log, cancelled, progress, (unit,))
    library = found.libraries.get(unit)
    if library is None:
        reason = (
            "; ".join(f"{v.family}/{v.variant}: {v.error}" for v in found.failed[:3])
            or "this torch has no CUDA"
        )
        raise BuildError(f"there is no {unit} library to load: {reason}", found.causes)
    torch.ops.load_library(library)
    torch.compiler.assume_constant_result(_auto_impl)  # it reads files, which torch.compile cannot trace
    _loaded[unit] = found.archs, frozenset(v.key for v in found.variants)
    if unit == "cpu":
        register_given()


def _load_archs(chain) -> tuple[str, ...]:
    """Architectures whose library to load: those of the last build if they cover the GPUs present, else just
    the GPUs'."""
    present, last = default_archs() or _archs_by_torch(), report.last_archs(chain)
    return last if present and set(present) <= set(last) else present


def _archs_by_torch() -> tuple[str, ...]:
    """The GPUs' architectures where NVML does not say (no nvidia-ml-py, no nvidia-smi)."""
    import torch

    return tuple(sorted({_arch_of_device(i) for i in range(torch.cuda.device_count())}))


def _check_unchanged(unit: str) -> None:
    archs, keys = _loaded[unit]
    now = plan.objects(toolchain.detect(), (unit,), archs)
    changed = sorted({i.title for i in now if i.key not in keys}) or (
        ["a kernel was removed"] if len(now) < len(keys) else []
    )
    if changed:
        raise BuildError(
            "the kernel sources changed after this process loaded them "
            f"({', '.join(changed[:3])}{' …' if len(changed) > 3 else ''}); "
            "it goes on running the old ones: start a new process to measure the new"
        )


def _quiet(text: str) -> None:
    logging.getLogger("fusescope.build").info(text)


def _resolve(op: str, kind: str) -> Callable:
    import torch

    if kind not in _loaded:
        load(kind)
    packet = getattr(torch.ops.fusescope, op, None)
    if packet is None:
        failed = [
            f"{f}/binding.cpp: {s['binding.cpp']['error']}"
            for f, s in report.state().items()
            if _failed(s, "binding.cpp")
        ]
        if failed:
            raise BuildError(
                f"operator fusescope::{op} is not there; its binding may be one that failed to build: "
                + "; ".join(failed)
            )
        raise ValueError(f"there is no operator fusescope::{op}")
    _calls[op, kind] = packet.default
    return packet.default


def _auto_impl(op: str, kind: str, index: int | None) -> str:
    """What "auto" means for an operator on a device, chosen once a process."""
    key = (op, kind, index)
    if key not in _auto:
        known = families()
        family = max((f for f in known if op == f or op.startswith(f"{f}_")), key=len, default=None)
        if family is None:
            raise ValueError(f'impl="auto" of {op}: no kernel family of that name; known: {", ".join(known)}')
        _auto[key] = choose(family, kind if index is None else f"{kind}:{index}")
    return _auto[key]


def _arch_of_device(index: int | None) -> str:
    import torch

    return arch_of(*torch.cuda.get_device_capability(index))


def _failed(states: dict, name: str) -> bool:
    return states.get(name, {}).get("status") == "failed"


def _unsupported(op: str, kind: str, impl: str, text: str) -> Exception:
    """The exception to raise for a refusal; a kernel that is missing because it did not build says so."""
    reason = re.search(r"unsupported: (.*)", text)[1].strip()
    if "no implementation" in reason:
        for family, states in report.state().items():
            if (op == family or op.startswith(f"{family}_")) and _failed(states, impl):
                return BuildError(f"{family}/{impl} failed to build: {states[impl]['error']}")
    return Unsupported(reason)
