"""Measured choices of a linear layer's algorithm on disk: one JSON file per device and version of
cuBLASLt."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
from functools import cache
from pathlib import Path

import torch

from fusescope.core import paths, whole_files


@cache
def file_of(index: int | None) -> Path:
    """Of this device and version of the library."""
    device = re.sub(r"\W+", "-", torch.cuda.get_device_name(index))
    return paths.build_cache() / "algorithms" / f"{device}-cublasLt{_library_version()}.json"


@cache
def _library_version() -> int:
    """Of the library that torch has loaded: what it calls an algorithm holds for that version only."""
    for name in filter(
        None, (os.environ.get("FUSESCOPE_CUBLASLT"), "libcublasLt.so.13", "libcublasLt.so.12")
    ):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            library.cublasLtGetVersion.restype = ctypes.c_size_t
            return int(library.cublasLtGetVersion())
    return 0


def read(file: Path) -> dict[str, dict]:
    """{problem: entry}; what cannot be read counts as nothing known."""
    found = whole_files.read_object(file)
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}


def write(file: Path, name: str, entry: dict) -> None:
    """Two processes that write at once lose one's finding, which costs that one a measurement."""
    with contextlib.suppress(OSError):  # a full or read-only disk costs time here, nothing else
        whole_files.replace(file, json.dumps(read(file) | {name: entry}, indent=0))
