"""Building the extension: hash, compile what is missing, link, report. Torch is neither imported nor needed
to be able to run."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fusescope.core.doctor import diagnose, examine
from fusescope.core.errors import BuildError
from fusescope.core.machine import archs as arch_names
from fusescope.core.machine import nvml, toolchain
from fusescope.core.machine.toolchain import Toolchain, known_archs
from fusescope.kernels import cache, figures, ninja, plan, report
from fusescope.kernels.link import link
from fusescope.kernels.lock import builder
from fusescope.kernels.report import BuildReport

_NEEDED = ("g++", "ninja", "torch", "binutils")
_USUAL_S = {"nvcc": 12.0, "g++": 4.5, "binding": 6.0}  # of an object; CuTe's kernels take up to 70
_LINK_S = 1.0
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)


def build(
    archs=None,
    clean: bool = False,
    log: Callable[[str], None] = print,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    units: tuple[str, ...] = ("cpu", "cuda"),
    families: tuple[str, ...] | None = None,
) -> BuildReport:
    """Build the CPU libraries and, for the given architectures (default: those of the GPUs present), the CUDA
    ones; one library per family, of all families or of the named ones alone.

    A source that does not compile or link is left out and reported as
    failed; the others are built. One builder at a time: a second one waits and reuses. clean: forget
    everything built with this toolchain. Raises ValueError for an architecture nvcc does not know and for an
    unknown family, BuildError (with causes) where a tool is missing or nothing can be linked, Cancelled when
    cancelled() says so.
    """
    chain = toolchain.detect()
    archs = _architectures(chain, archs, log) if "cuda" in units else ()
    families = None if families is None else tuple(families)
    _require(chain, archs)
    folder = report.folder_of(chain)
    start = time.monotonic()
    try:
        with builder(folder, log, cancelled):
            if clean:
                cache.empty(folder)
            cache.sweep(folder)
            items, compiled = _compile(chain, folder, units, archs, families, log, cancelled, progress)
            linked = _link(chain, folder, items, log)
            result = _report(chain, archs, units, items, time.monotonic() - start, compiled, linked)
            saved = _with_earlier(chain, result, units, families)
            report.save(chain, saved)
            cache.prune(folder, keep=plan.objects(chain, ("cpu", "cuda"), saved.archs) + items, log=log)
    except OSError as error:
        if error.errno not in _DISK:
            raise
        raise BuildError(
            f"the build folder {folder} cannot be written: {error.strerror}", tuple(diagnose(str(error)))
        ) from error
    log(_summary(result))
    return result


def compile_objects(
    items: list[plan.Object],
    log: Callable[[str], None] = lambda text: None,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> dict[str, str | None]:
    """Compile these objects alone, where they are missing: {file name: None, or its first error}. Nothing is
    linked."""
    chain = toolchain.detect()
    folder = report.folder_of(chain)
    with builder(folder, log, cancelled):
        cache.sweep(folder)
        missing = [i for i in items if not (folder / i.file).is_file()]
        if missing:
            ninja.compile_missing(chain, folder, missing, log, cancelled, progress)
            figures.write(folder, [i for i in missing if (folder / i.file).is_file()], ninja.seconds(folder))
            if torn := _drop_torn(chain, folder, missing):
                raise BuildError(f"edited while they were compiled: {_titles(torn)}; build again")
    return {i.file: report.status_of(folder, i)[1] for i in items}


def _drop_torn(chain: Toolchain, folder: Path, compiled: list[plan.Object]) -> list[plan.Object]:
    """Throw away the objects whose source no longer is what their name says: the compiler may have read it
    half new."""
    # CUDA bindings are the same for every architecture, but belong to no build without one.
    archs = tuple(sorted({i.arch for i in compiled if i.arch})) or known_archs(chain)[:1]
    now = {i.file for i in plan.objects(chain, tuple({i.unit for i in compiled}), archs)}
    torn = [i for i in compiled if i.file not in now]
    for item in torn:
        for suffix in (".o", ".log", ".json", ".failed"):
            (folder / item.file).with_suffix(suffix).unlink(missing_ok=True)
    return torn


def _titles(items: list[plan.Object]) -> str:
    return ", ".join(sorted({i.title for i in items}))


def default_archs() -> tuple[str, ...]:
    """Architectures of the GPUs of this machine, by NVML; none without a driver."""
    found = {
        arch_names.arch_of(*(int(n) for n in gpu["compute_capability"].split("."))) for gpu in nvml.gpus()
    }
    return tuple(sorted(found))


def _architectures(chain: Toolchain, archs, log) -> tuple[str, ...]:
    if archs is None:
        found = default_archs()
        if found and chain.nvcc is None:
            log(
                f"no nvcc: the CUDA kernels are not built for {', '.join(found)} "
                "(fusescope doctor says how to get it)"
            )
            return ()
        return found
    archs = tuple(sorted({arch_names.normal(a) for a in archs}))
    known = known_archs(chain)
    unknown = [a for a in archs if a not in known]
    if archs and chain.nvcc is None:
        raise _error("nvcc is missing, so nothing can be compiled for " + ", ".join(archs), ("nvcc",))
    if unknown:
        raise ValueError(
            f"nvcc {chain.nvcc.version} does not support {', '.join(unknown)}; it supports {', '.join(known)}"
        )
    return archs


def _require(chain: Toolchain, archs: tuple[str, ...]) -> None:
    have = {"g++": chain.gxx, "ninja": chain.ninja, "torch": chain.torch_dir}
    have["binutils"] = all(shutil.which(name) for name in ("ld", "objcopy", "nm"))
    missing = tuple(name for name in _NEEDED if not have[name])
    if missing:
        raise _error(f"{' and '.join(missing)} missing, so the extension cannot be built", missing)
    if archs and not chain.cuda_home:
        raise _error(
            "the CUDA folder (include/cuda_runtime.h) is missing, so CUDA kernels cannot be built", ("nvcc",)
        )


def _error(message: str, checks: tuple[str, ...]) -> BuildError:
    causes = tuple(f for f in examine() if f.check in checks and f.status != "ok")
    fixes = "; ".join(f.fix for f in causes if f.fix)
    return BuildError(message + (f"; fix: {fixes}" if fixes else ""), causes)


def _compile(
    chain, folder: Path, units, archs, families, log, cancelled, progress
) -> tuple[list[plan.Object], int]:
    """Compile until every object of the current sources exists or has failed; returns them and how many were
    compiled.

    A source saved while its compiler ran may have been read half new: whatever no longer matches its hash is
    thrown away.
    """
    compiled = 0
    for _ in range(3):
        items = plan.objects(chain, units, archs, families)
        missing = [i for i in items if not (folder / i.file).is_file()]
        if not missing:
            return items, compiled
        log(f"compiling {len(missing)} of {len(items)} objects into {folder.name}")
        progress(0, len(missing), "kernels")
        ninja.compile_missing(chain, folder, _longest_first(chain, missing), log, cancelled, progress)
        figures.write(folder, [i for i in missing if (folder / i.file).is_file()], ninja.seconds(folder))
        compiled += len(missing)
        torn = _drop_torn(chain, folder, missing)
        if not torn:
            return items, compiled
        log(f"edited while they were compiled, so compiled again: {_titles(torn)}")
    raise BuildError(
        "the sources changed during three attempts to build them; build again when they are at rest"
    )


def _longest_first(chain: Toolchain, missing: list[plan.Object]) -> list[plan.Object]:
    """In the order of what they took last time, so that no long one is left alone at the end; unknown CUDA
    ones count as long."""
    expected = _expected(chain)
    return sorted(missing, key=lambda i: -expected(i))


def seconds_missing(
    device: str, archs: tuple[str, ...] | None = None, families: tuple[str, ...] | None = None
) -> float:
    """What building what a device ("cpu", "cuda:0") needs would take now, in seconds; 0 where all is built or
    nothing can be. archs: default, those of the last build or of the GPUs present. families: default, all."""
    chain = toolchain.detect()
    units = ("cpu", "cuda") if device.startswith("cuda") and chain.nvcc else ("cpu",)
    if "cuda" in units and archs is None:
        archs = report.last_archs(chain) or default_archs()
    folder, expected = report.folder_of(chain), _expected(chain)
    items = plan.objects(chain, units, tuple(archs or ()), families)
    missing = [expected(i) for i in items if report.status_of(folder, i)[0] == "not built"]
    if not missing:
        return 0.0
    at_once = min(toolchain.compilers() or len(os.sched_getaffinity(0)), len(os.sched_getaffinity(0)))
    return max(sum(missing) / at_once, max(missing)) + _LINK_S * len(units)


def _expected(chain: Toolchain) -> Callable[[plan.Object], float]:
    """Seconds of a compiler for an object: what its last text took, else the usual."""
    earlier = report.saved(chain)
    took = {(v.family, v.variant, v.device, v.arch): v.seconds for v in earlier.variants} if earlier else {}

    def expected(item: plan.Object) -> float:
        known = took.get((item.family, item.name or "binding.cpp", item.unit, item.arch))
        return known or _USUAL_S[item.compiler if item.name else "binding"]

    return expected


def _link(chain, folder: Path, items: list[plan.Object], log) -> int:
    """Link each library; returns how many are new."""
    new, before = 0, set(folder.glob("*.so"))
    for (unit, _), mine in plan.by_library([i for i in items if (folder / i.file).is_file()]).items():
        name, dropped = link(chain, folder, unit, mine)
        for item in dropped:
            log(f"left out: {(folder / item.file).with_suffix('.failed').read_text().strip()}")
        if folder / name not in before:
            log(f"linked {name}")
            new += 1
        for item in mine:  # the time of last use, which is what pruning goes by
            if item not in dropped:
                os.utime(folder / item.file)
    return new


def _report(chain, archs, units, items, seconds: float, compiled: int, linked: int) -> BuildReport:
    result = report.assemble(chain, archs, units, items)
    if result is None:
        raise BuildError("nothing was built: cuda/ holds no family (a folder with a binding.cpp)")
    causes = (
        tuple(dataclasses.asdict(f) for f in diagnose("\n".join(v.output for v in result.failed)))
        if result.failed
        else ()
    )
    reused = compiled == 0 and linked == 0
    return dataclasses.replace(
        result, seconds=round(seconds, 3), compiled=compiled, reused=reused, causes=causes
    )


def _with_earlier(chain, result: BuildReport, units, families) -> BuildReport:
    """What is kept as the last build: one of the CPU alone, or of some families, does not forget what else
    was built before, and for which GPUs."""
    earlier = report.saved(chain)
    if earlier is None or ("cuda" in units and "cpu" in units and families is None):
        return result
    built = {(v.family, v.device) for v in result.variants}
    variants = result.variants + tuple(
        v
        for v in earlier.variants
        if v.device not in units or (families is not None and (v.family, v.device) not in built)
    )
    return dataclasses.replace(
        result,
        ok=result.ok and all(v.status == "built" for v in variants),
        variants=variants,
        archs=result.archs if "cuda" in units and families is None else earlier.archs,
        libraries=earlier.libraries | result.libraries,
    )


def _summary(result: BuildReport) -> str:
    if result.reused and result.ok:
        return f"nothing to do: all {len(result.variants)} objects are built"
    built = sum(v.status == "built" for v in result.variants)
    text = f"built {built} of {len(result.variants)} objects ({result.compiled} compiled)"
    return f"{text} in {result.seconds:.1f} s" + "".join(
        f"\nfailed: {v.family}/{v.variant} {v.arch or v.device}: {v.error}" for v in result.failed
    )
