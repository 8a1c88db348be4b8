"""Loading the libraries into torch and calling the operators.

Each family is a library, built and loaded when something of it is first called. A process loads it once and
stays with it: code that ran cannot be unloaded from torch. Jobs therefore run in a fresh process each, and
``load`` says so where the sources have changed since.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import Any

from fusescope.core.errors import BuildError, Unsupported
from fusescope.core.machine import toolchain
from fusescope.core.machine.archs import arch_of
from fusescope.core.sources import families
from fusescope.kernels import plan, report
from fusescope.kernels.build import build, default_archs
from fusescope.kernels.fakes import register_given

# unit and family: architectures and content keys of what this process runs
_loaded: dict[tuple[str, str], tuple[tuple[str, ...], frozenset[str]]] = {}
_calls: dict[tuple[str, str], Callable] = {}  # (operator, device type): the overload
_auto: dict[tuple[str, str, int | None], str] = {}


def load(
    device_type: str,
    only: Iterable[str] | None = None,
    log: Callable[[str], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> None:
    """Build what is missing and load the libraries of all families, or ``only`` of these: the CPU one always
    (it holds the schemas), the CUDA one for "cuda". ``log``, ``cancelled`` and ``progress`` are those of
    ``build``.

    Raises BuildError where none can be built, or where the sources have changed since this process loaded
    them; Unsupported for "cuda" without a usable GPU; ValueError for a family that does not exist.
    """
    if device_type not in ("cpu", "cuda"):
        raise ValueError(f"a device type is cpu or cuda, not {device_type!r}")
    import torch

    if device_type == "cuda" and not torch.cuda.is_available():
        raise Unsupported(
            f"no CUDA device: torch {torch.__version__} sees no usable GPU (fusescope doctor says why)"
        )
    wanted = tuple(families() if only is None else only)
    for unit in ("cpu", "cuda") if device_type == "cuda" else ("cpu",):
        _check_unchanged(unit, wanted)
        if missing := tuple(f for f in wanted if (unit, f) not in _loaded):
            _load_unit(torch, unit, missing, log or _quiet, cancelled, progress)


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
    """The kernel that "auto" means where nothing better is known: the last of the ladder that is built
    and that the GPU ("cuda" or "cuda:1") runs; one whose source says "auto: no" only where no other is left;
    of swept variants of one file the first. On the CPU "cpu", or the last CPU kernel."""
    kind, _, index = device_type.partition(":")
    found = families((family,)).get(family)
    if found is None:
        raise ValueError(f"there is no kernel family {family!r}; known: {', '.join(families())}")
    candidates = [v for v in found.variants if v.device == kind]
    if kind == "cuda":
        arch = _arch_of_device(int(index) if index else None)
        candidates = [v for v in candidates if plan.claims(v, arch)]
    states = report.state(only=(family,)).get(family, {})
    candidates = [v for v in candidates if states.get(v.name, {}).get("status") not in ("failed",)]
    if not candidates:
        raise Unsupported(f"{family} has no kernel for {device_type} that is built")
    last = ([v for v in candidates if not v.not_auto] or candidates)[-1]
    if kind == "cpu":
        last = next((v for v in candidates if v.name == "cpu"), last)
    return next(v.name for v in candidates if v.path == last.path)


def _load_unit(torch, unit: str, names: tuple[str, ...], log, cancelled, progress) -> None:
    chain = toolchain.detect()
    archs = _load_archs(chain) if unit == "cuda" else ()
    if unit == "cuda" and chain.nvcc is None:
        raise BuildError(
            "nvcc, the CUDA compiler, is missing: the CUDA kernels cannot be built (fusescope doctor)"
        )
    items = plan.objects(chain, (unit,), archs, names)
    found = report.assemble(chain, archs, (unit,), items)
    if found is None or not (found.ok or _settled(found)):
        found = build(archs or None, False, log, cancelled, progress, (unit,), names)
    libraries = {f: path for f in names if (path := found.libraries.get(f"{unit}/{f}"))}
    if not libraries:
        reason = (
            "; ".join(f"{v.family}/{v.variant}: {v.error}" for v in found.failed[:3])
            or "this torch has no CUDA"
        )
        raise BuildError(f"there is no {unit} library to load: {reason}", found.causes)
    for family, library in libraries.items():
        torch.ops.load_library(library)
        _loaded[unit, family] = found.archs, frozenset(v.key for v in found.variants if v.family == family)
    if unit == "cpu":
        register_given()


def _settled(found: report.BuildReport) -> bool:
    """Whether building again would change nothing: what can be linked is, and the rest has failed."""
    built = {(v.device, v.family) for v in found.variants if v.status == "built"}
    return len(found.libraries) == len(built) and all(v.status != "not built" for v in found.variants)


def _load_archs(chain) -> tuple[str, ...]:
    """Architectures whose library to load: those of the last build if they cover the GPUs present, else just
    the GPUs'."""
    present, last = default_archs() or _archs_by_torch(), report.last_archs(chain)
    return last if present and set(present) <= set(last) else present


def _archs_by_torch() -> tuple[str, ...]:
    """The GPUs' architectures where NVML does not say (no nvidia-ml-py, no nvidia-smi)."""
    import torch

    return tuple(sorted({_arch_of_device(i) for i in range(torch.cuda.device_count())}))


def _check_unchanged(unit: str, names: tuple[str, ...]) -> None:
    changed, known = [], families(names)
    for family in names:
        if (unit, family) not in _loaded:
            continue
        archs, keys = _loaded[unit, family]
        now = plan.objects(toolchain.detect(), (unit,), archs, (family,)) if family in known else []
        changed += sorted({i.title for i in now if i.key not in keys}) or (
            [f"a kernel of {family} was removed"] if len(now) < len(keys) else []
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

    _ready(op, kind)
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
        family = _family_of(op)
        if family is None:
            known = ", ".join(families())
            raise ValueError(f'impl="auto" of {op}: no kernel family of that name; known: {known}')
        _auto[key] = choose(family, kind if index is None else f"{kind}:{index}")
    return _auto[key]


def _family_of(op: str) -> str | None:
    """The family whose binding declares an operator: each is named as the family, or begins with its name."""
    return max((f for f in families() if op == f or op.startswith(f"{f}_")), key=len, default=None)


def _ready(op: str, kind: str) -> bool:
    """Load the library of an operator where this process has not."""
    family = _family_of(op)
    if family and (kind, family) not in _loaded:
        load(kind, (family,))
    return True


# They read files, which torch.compile cannot trace. This is what torch.compiler.assume_constant_result does,
# without importing torch.
for _constant in (_auto_impl, _ready):
    _constant._dynamo_marked_constant = True


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
