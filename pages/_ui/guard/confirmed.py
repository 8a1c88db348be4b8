"""Files of links that a browser confirmed: a reload of the page, a new session to Streamlit, does not ask
again.

Kept in the server's memory, for one browser until it is closed, and for one content of one file: whatever was
changed since is shown and asked about again.
"""

from __future__ import annotations

import hashlib
import stat
import threading
from collections import OrderedDict
from pathlib import Path

import streamlit as st

_COOKIE = "_streamlit_xsrf"  # version|mask|masked token|time: random per browser, and ends with it
_BROWSERS, _FILES = 32, 256
_LARGEST = 16 << 20  # bytes; a larger file is asked about each time

_kept: OrderedDict[str, OrderedDict[tuple[str, str], None]] = OrderedDict()
_lock = threading.Lock()


def content(file: Path) -> str:
    """A digest of a regular file's resolved path and bytes; "" for a folder, a large file, one that cannot be
    read: those are not remembered."""
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            return ""
        return hashlib.sha256(str(file.resolve()).encode() + b"\0" + file.read_bytes()).hexdigest()
    except OSError:
        return ""


def remember(path: str, digest: str) -> None:
    """Note that this browser confirmed ``path`` (file.py:function, a file) with that content."""
    name = _browser()
    if not name or not digest:
        return
    with _lock:
        files = _kept.setdefault(name, OrderedDict())
        _kept.move_to_end(name)
        files[path, digest] = None
        files.move_to_end((path, digest))
        while len(files) > _FILES:
            files.popitem(last=False)
        while len(_kept) > _BROWSERS:
            _kept.popitem(last=False)


def remembered(path: str, digest: str) -> bool:
    """Whether this browser confirmed ``path`` with that content before."""
    with _lock:
        return bool(digest) and (path, digest) in _kept.get(_browser(), ())


def _browser() -> str:
    """What tells this browser from others: its token without the mask, which changes; "" without a cookie."""
    parts = str(st.context.cookies.get(_COOKIE, "")).split("|")
    try:
        version, mask, token = parts[0], bytes.fromhex(parts[1]), bytes.fromhex(parts[2])
    except (IndexError, ValueError):
        return ""
    if version != "2" or len(mask) != 4 or len(token) < 16:
        return ""
    return bytes(byte ^ mask[i % 4] for i, byte in enumerate(token)).hex()
