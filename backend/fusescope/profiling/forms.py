"""What kind of profile a file is, by its content and not by its name."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path

from fusescope.profiling.nsight import ncu_source

FORMS = {
    "chrome": "Chrome trace (torch.profiler, Kineto, triton …)",
    "nsys": "Nsight Systems export (.sqlite)",
    "ncu": "Nsight Compute table (.csv)",
    "ncu-source": "Nsight Compute source page (.csv)",
    "ncu-rep": "Nsight Compute report (.ncu-rep)",
    "snapshot": "torch memory snapshot (.pickle)",
}
_HEAD = 1 << 20


def detect(path: Path) -> str:
    """One of FORMS. ValueError: one sentence on what the file is, or is not, and what to do."""
    path = Path(path)
    head = _head(path)
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        raise ValueError(f"{path.name} is empty")
    if head.startswith(b"SQLite format 3\0"):
        return "nsys"
    if head.startswith(b"NVR\0"):
        return "ncu-rep"
    if path.suffix in (".nsys-rep", ".qdrep"):
        raise ValueError(
            f"{path.name} is a report of Nsight Systems: "
            f"nsys export --type sqlite {path.name}, then import that"
        )
    if zipfile.is_zipfile(path):
        raise ValueError(
            f"{path.name} is a zip archive: unpack it first, or use runs import where it is an exported run"
        )
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return "snapshot"
    if start[:1] in (b"{", b"["):
        return "chrome"
    if ncu_source.HEADER.search(head):
        return "ncu-source"
    if b'"Kernel Name"' in head or (b"==PROF==" in head and path.suffix == ".csv"):
        return "ncu"
    if b"Kernel Name," in head or b",Kernel Name" in head:
        return "ncu"
    kinds = ", ".join(FORMS.values())
    raise ValueError(
        f"{path.name} is none of the profiles that can be read ({kinds}); it begins with {start[:16]!r}"
    )


def _head(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            return gzip.GzipFile(fileobj=raw).read(_HEAD) if packed else raw.read(_HEAD)
    except (gzip.BadGzipFile, zlib.error):
        raise ValueError(f"{path.name} is a damaged gzip file; restore it from a copy") from None
    except EOFError:
        raise ValueError(f"{path.name} ends too early: the compressed file is truncated") from None
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read ({error.strerror})") from None
