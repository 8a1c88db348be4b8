"""Masks from files: those uploaded here, and what a file on disk holds."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from fusescope import masks
from fusescope.core import paths


def folder() -> Path:
    """Where uploaded masks are kept."""
    return paths.profiles() / "masks"


def saved() -> list[str]:
    """Paths of the masks uploaded so far, newest first."""
    found = [f for f in folder().glob("*.npy") if f.is_file()] if folder().is_dir() else []
    return [str(f) for f in sorted(found, key=lambda f: -f.stat().st_mtime_ns)]


def stamp(text: str) -> str:
    """Changes when a mask's file does; "" for formulas."""
    if not text.startswith("file:"):
        return ""
    try:
        s = Path(text.removeprefix("file:")).expanduser().stat()
    except OSError:
        return ""
    return f"{s.st_size}/{s.st_mtime_ns}"


@st.cache_data(max_entries=64, show_spinner=False)
def shape(text: str, stamp: str) -> tuple[int, int] | None:
    """(queries, keys) of a mask from a file, None for a formula, which fits any; ValueError where it cannot
    be read."""
    given = masks.parse(text)
    return given.array.shape[-2:] if isinstance(given, masks.DenseMask) else None
