"""Operators: one module each in one of the folders of ``GROUPS``, found by name.

Importing this package, or an operator, imports no torch. What operators share is in ``common``, the work
behind fused attention in ``attention``, that behind decoder layers in ``decoder``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from types import ModuleType
from typing import Any

from fusescope.core import sources
from fusescope.core.discovery import load_part, meant, module_names
from fusescope.core.machine.archs import runs_on
from fusescope.ops import dense, fused, layer, sparse
from fusescope.ops.base import PARTS, Implementation, Tolerance
from fusescope.ops.common import user

GROUPS = (dense, fused, layer, sparse)
"""The packages whose public modules are operators."""


def names() -> list[str]:
    """The operators there are."""
    return sorted(name for group in GROUPS for name in module_names(group))


def titles() -> dict[str, str]:
    """The operators with their titles, in the order of these: for lists that people read."""
    found = {name: load(name).TITLE for name in names()}
    return dict(sorted(found.items(), key=lambda item: item[1].casefold()))


@cache
def load(name: str) -> ModuleType:
    """The operator's module, checked for completeness; ValueError for an unknown name, TypeError naming
    missing parts."""
    for group in GROUPS:
        if name in module_names(group):
            return load_part(group, name, PARTS, "operator")
    raise ValueError(f"unknown operator {name!r}; {meant(name, names())}")


def is_user(impl: str) -> bool:
    """Whether the name is of the form path/to/file.py:function."""
    return ".py:" in impl


def implementations(op: str, device: str = "cpu", arch: str | None = None) -> list[Implementation]:
    """Ours (ladder order), then peers. ``device``: "cpu", "cuda" or "cuda:1"; ``arch``: what that GPU is,
    e.g. "sm_86".

    Those that cannot run on that device are listed too, with the reason.
    """
    module, kind = load(op), device.split(":")[0]
    family = sources.family(module.FAMILY)
    found = []
    for v in family.variants if family else ():
        reason = None
        if v.device != kind:
            reason = f"{v.name} is a {'CUDA' if v.device == 'cuda' else 'CPU'} kernel; the device is {device}"
        elif arch and v.archs not in ((), sources.ARCHS) and not runs_on(v.archs, arch):
            reason = f"{v.name} is for {', '.join(v.archs)}; {device} is {arch}"
        found.append(Implementation(v.name, "ours", v.idea, (v.device,), v.label, v.source_hash, reason))
    for name, peer in module.PEERS.items():
        reason = (
            None
            if kind in peer.devices
            else f"{name} exists on {' and '.join(peer.devices)}; the device is {device}"
        )
        if reason is None and peer.package and not installed(peer.package):
            reason = f"{name} needs the package {peer.package}, which is not installed"
        found.append(Implementation(name, "peer", peer.idea, peer.devices, reason=reason))
    return found


def installed(package: str) -> bool:
    """Whether a distribution is there: by its metadata, so that nothing of it is imported."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def describe(op: str, impl: str, device: str = "cpu") -> Implementation:
    """One implementation by name, a user's file.py:function included; ValueError naming what there is."""
    if is_user(impl):
        return user.described(impl)
    found = implementations(op, device)
    for item in found:
        if item.name == impl:
            return item
    if impl == "auto":
        return Implementation(
            "auto", "ours", "the best of ours for the case, by the chooser", ("cpu", "cuda")
        )
    raise ValueError(
        f"{op} has no implementation {impl!r}; it has {', '.join(i.name for i in found)} and "
        "path/to/file.py:function"
    )


def chosen(op: str, names: Sequence[str], device: str, arch: str | None) -> list[Implementation]:
    """The implementations that ``names`` mean, in their order. "all": everything that can run on the device;
    a swept kernel's name without its values: every choice of them. ValueError for an unknown name."""
    if not names:
        raise ValueError(f"name at least one implementation of {op}, or all")
    listed = implementations(op, device, arch)
    found: dict[str, Implementation] = {}
    for name in names:
        if name == "all":
            meant = [i for i in listed if i.reason is None]
        else:
            meant = [i for i in listed if i.name.startswith(f"{name}:")] or [describe(op, name, device)]
        found |= {i.name: i for i in meant}
    if not found:
        raise ValueError(f"{op} has no implementation that runs on {device}")
    return list(found.values())


def compile_seconds(op: str, impls: Iterable[str], device: str) -> float:
    """Seconds of each new case that these implementations spend in a compiler, as far as their peers say (see
    Peer.compiles)."""
    peers, kind = load(op).PEERS, device.split(":")[0]
    return sum(peers[i].compiles.get(kind, 0.0) for i in dict.fromkeys(impls) if i in peers)


def skips(op: str, impl: str) -> bool:
    """Whether an implementation leaves out what a mask hides altogether; of somebody's function nothing is
    known, so it does not."""
    peers = load(op).PEERS
    return peers[impl].skips if impl in peers else not is_user(impl)


def make(op: str, impl: str, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """A callable without arguments that runs one call of the implementation on these inputs.

    Work that is not part of a call (a BlockMask, compilation of a peer) is done here. ``run.backend``, if it
    is set, names what really runs. Raises core.errors.Unsupported, and ValueError for names that do not
    exist.
    """
    module = load(op)
    if is_user(impl):
        function = user.function(impl)
        args, kwargs = module.arguments(inputs)
        args = user.taken(function, args)
        return lambda: function(*args, **kwargs)
    if impl in module.PEERS:
        return module.PEERS[impl].make(inputs)
    describe(op, impl)
    name = auto(op, inputs) if impl == "auto" else impl

    def run():
        return module.call(inputs, name)

    run.backend = name
    if hasattr(module, "prepared"):
        run.setup_ms, run.setup_bytes = module.prepared(inputs, name)
    return run


def auto(op: str, inputs: Mapping[str, Any]) -> str:
    """The kernel that impl="auto" means for these inputs: the operator's own choice, or the last of its
    ladder."""
    module = load(op)
    if hasattr(module, "auto"):
        return module.auto(inputs)
    from fusescope import kernels

    device = next(v.device.type for v in inputs.values() if hasattr(v, "device"))
    return kernels.choose(module.FAMILY, device)


def joined(op: str, result: Any) -> Any:
    """A result of the operator as the one tensor that is compared (see base.PARTS)."""
    module = load(op)
    return module.joined(result) if hasattr(module, "joined") else result


def tolerance(op: str, values: Mapping[str, Any], dtype: str) -> Tolerance:
    """The error allowed on a case (complete values, as validate gives them)."""
    module = load(op)
    return module.tolerance(values, dtype) if hasattr(module, "tolerance") else module.TOLERANCE[dtype]
