"""Keeping the build cache small: objects of old edits go, least recently used first, those of the current
sources stay."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fusescope.kernels.plan import Object

_DAYS = 30


def limit_bytes() -> int:
    """How much a build folder may hold: FUSESCOPE_BUILD_GB, default 2 GB."""
    given = os.environ.get("FUSESCOPE_BUILD_GB", "2")
    try:
        return int(float(given) * 1e9)
    except ValueError:
        raise ValueError(f"FUSESCOPE_BUILD_GB is a number of gigabytes, not {given!r}") from None


def empty(folder: Path) -> None:
    """Remove everything but the lock, which the caller holds."""
    for path in folder.iterdir():
        if path.name != "lock":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def sweep(folder: Path) -> None:
    """Remove what a killed builder left half-written. The caller holds the lock, so nobody is writing
    these."""
    for pattern in ("*.o.part", "*.o.whole", "*.so.*.part", "*.json.*.part"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def prune(folder: Path, keep: list[Object], log: Callable[[str], None] = lambda text: None) -> None:
    """Bring the folder under the limit, and remove folders of other toolchains unused for a month.

    A library that some process has loaded stays usable for it: its file goes, its pages do not.
    """
    wanted = {Path(item.file).stem for item in keep}
    files = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            files.append((path.stat().st_mtime, path.stat().st_size, path))
    total, limit, gone = sum(size for _, size, _ in files), limit_bytes(), 0
    newest = {}  # library of each unit and family
    for _, _, path in sorted(files, key=lambda f: f[0]):
        if path.suffix == ".so":
            newest[path.name.rpartition("-")[0]] = path
    for _, size, path in sorted(files, key=lambda f: f[0]):
        if total <= limit:
            break
        if (
            path.suffix in (".o", ".so", ".log", ".failed", ".json", ".cpp", ".h", ".ptx", ".sass")
            and path.name != "report.json"
        ):
            if path.stem in wanted or path in newest.values():
                continue
            path.unlink(missing_ok=True)
            total, gone = total - size, gone + 1
    if gone:
        log(f"removed {gone} files of earlier builds (the folder's limit is {limit / 1e9:.1f} GB)")
    for other in folder.parent.iterdir():
        if (
            other != folder
            and (other / "report.json").is_file()
            and time.time() - (other / "report.json").stat().st_mtime > _DAYS * 86400
        ):
            shutil.rmtree(other, ignore_errors=True)
            log(f"removed {other.name}, unused for {_DAYS} days")
