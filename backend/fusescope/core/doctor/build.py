"""The doctor's checks of the build folder: what it covers, who holds it, what it costs, and why the last
build failed."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil

from fusescope.core import paths, sources
from fusescope.core.doctor.diagnosis import diagnose
from fusescope.core.doctor.findings import Finding
from fusescope.core.machine import toolchain
from fusescope.core.machine.archs import arch_of, runs_on
from fusescope.core.machine.toolchain import Toolchain

ENOUGH_BYTES, LITTLE_BYTES = 2_000_000_000, 200_000_000


def coverage(chain: Toolchain, present: list[dict]) -> Finding | None:
    if not present:
        return None
    archs = sorted({arch_of(*(int(n) for n in g["compute_capability"].split("."))) for g in present})
    known = toolchain.known_archs(chain)
    strange = [a for a in archs if known and a not in known]
    if strange:
        says = f"nvcc {chain.nvcc.version} does not support {', '.join(strange)}, which is here"
        return Finding(
            "architecture", "fail", says, "install a newer CUDA toolkit and point CUDACXX at its nvcc"
        )
    built = tuple(_last_report(chain).get("archs", ()))
    bare = [a for a in archs if not runs_on(built, a)]
    if built and bare:
        says = (
            "compute capability not covered by the build: "
            f"{', '.join(bare)} is here, built is {', '.join(built)}"
        )
        return Finding(
            "architecture",
            "warn",
            says,
            f"fusescope build --arch {' '.join(sorted({*built, *archs}))}",
        )
    return Finding(
        "architecture",
        "ok",
        f"{', '.join(archs)}: {'built' if built else 'not built yet (fusescope build)'}",
    )


def lock(chain: Toolchain) -> Finding | None:
    """Who holds the build folder. The kernel frees the lock of a dead process; what remains is its number in
    the file."""
    file = paths.build_cache() / chain.key / "lock"
    if not file.is_file():
        return None
    try:
        with open(file) as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
            pid = opened.read().strip()
    except BlockingIOError:
        return Finding(
            "lock",
            "ok",
            f"process {file.read_text().strip() or 'unknown'} is building; another build waits for it",
        )
    except OSError as error:
        return Finding("lock", "fail", f"{file}: {error.strerror}", f"sudo chown $USER {file}")
    if pid:
        says = (
            f"stale lock: process {pid} died while it built; it blocks nothing, and the next build takes over"
        )
        return Finding("lock", "warn", says, "fusescope build")
    return Finding("lock", "ok", "no build is running")


def cache(chain: Toolchain) -> Finding:
    root = paths.build_cache()
    if root.is_dir() and not os.access(root, os.W_OK):
        return Finding(
            "build cache",
            "fail",
            f"{root} may not be written",
            f"sudo chown -R $USER {root}, or set FUSESCOPE_BUILD",
        )
    report = root / chain.key / "report.json"
    if report.is_file() and not _last_report(chain):
        return Finding("build cache", "warn", f"stale cache: {report} is torn", "fusescope build --clean")
    others = [p.parent for p in sorted(root.glob("*/report.json")) if p.parent.name != chain.key]
    if others:
        says = f"stale cache: {len(others)} folder(s) of other torch versions or CPUs in {root} are not used"
        return Finding("build cache", "warn", says, shlex.join(["rm", "-r", *map(str, others)]))
    return Finding("build cache", "ok", str(root))


def runs_folder() -> Finding:
    """Whether a job could leave its run there."""
    home = paths.profiles()
    there = next(p for p in (home, *home.parents) if p.exists())
    if not there.is_dir():
        return Finding(
            "runs",
            "fail",
            f"{there} is no folder, so {home} cannot hold runs",
            "set FUSESCOPE_PROFILES to a folder",
        )
    if not os.access(there, os.W_OK | os.X_OK):
        says = f"{home} may only be read: runs there can be looked at, and nothing can be measured"
        return Finding(
            "runs",
            "warn",
            says,
            f"sudo chown -R $USER {there}, or set FUSESCOPE_PROFILES to a folder of your own",
        )
    return Finding("runs", "ok", str(home))


def kernels_folder() -> Finding:
    home = paths.cuda_sources()
    count = len(sources.families()) if home.is_dir() else 0
    if not count:
        return Finding(
            "kernels",
            "fail",
            f"there is no kernel family in {home}",
            "set FUSESCOPE_CUDA to the folder cuda/ of a checkout, or unset it",
        )
    return Finding("kernels", "ok", f"{count} families in {home}")


def space() -> Finding:
    free = {}
    for folder in (paths.build_cache(), paths.profiles()):
        there = next(p for p in (folder, *folder.parents) if p.exists())
        free[folder] = shutil.disk_usage(there).free
    folder, least = min(free.items(), key=lambda item: item[1])
    says = f"{least / 1e9:.1f} GB free at {folder}"
    if least >= ENOUGH_BYTES:
        return Finding("space", "ok", says)
    fix = (
        "fusescope build --clean, fusescope runs delete RUN, "
        "or FUSESCOPE_BUILD and FUSESCOPE_PROFILES on a larger disk"
    )
    return Finding(
        "space",
        "fail" if least < LITTLE_BYTES else "warn",
        f"no space: only {says}" if least < LITTLE_BYTES else says,
        fix,
    )


def last_build(chain: Toolchain) -> list[Finding]:
    """Why the last build left something out, if it did."""
    failed = [v for v in _last_report(chain).get("variants", ()) if v.get("status") == "failed"]
    found: dict[str, Finding] = {}
    for v in failed:
        title = f"{v['family']}/{v['variant']}"
        causes = diagnose(v.get("output", "")) or [
            Finding("source", "fail", f"{title} does not compile: {v['error']}", f"edit cuda/{v['family']}")
        ]
        for cause in causes:
            found.setdefault(
                cause.says, Finding(f"last build: {cause.check}", "fail", f"{title}: {cause.says}", cause.fix)
            )
    return list(found.values())


def _last_report(chain: Toolchain) -> dict:
    try:
        data = json.loads((paths.build_cache() / chain.key / "report.json").read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
