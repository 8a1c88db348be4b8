"""GET /static/…: Streamlit's scripts, styles and fonts, from memory.

A first visit asks for a hundred of them before any text stands. Streamlit hands each to two threads, checks
its path and looks at the disk: 3.4 ms of CPU time, 0.5 here. /static/ is no address for a route of ours, so
this is a middleware, within the door.
"""

from __future__ import annotations

import mimetypes
from functools import cache
from pathlib import Path
from typing import Any

from pages._ui.guard import opening
from pages._ui.widgets import site

_LASTING = b"public, immutable, max-age=31536000"  # a file's name holds the hash of what is in it
_PIECE = 1 << 18  # bytes handed over at once: what a slow visitor does not take waits here, not in a copy
_TYPES = {".js": "text/javascript", ".woff2": "font/woff2"}  # some machines' own list says otherwise
_CONDITIONS = (b"range", b"if-none-match", b"if-modified-since")


class Assets:
    """Middleware around ``app``, which answers what is not one of these files or not asked for as a whole."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.files = {f"{site.root()}/{f.relative_to(opening.STATIC).as_posix()}": f for f in _hashed()}

    async def __call__(self, scope, receive, send) -> None:
        file = self.files.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        if file is None or any(name in _CONDITIONS for name, _ in scope["headers"]):
            await self.app(scope, receive, send)
            return
        body = _content(file)
        kept = [(b"content-type", _type(file)), (b"content-length", str(len(body)).encode())]
        kept.append((b"cache-control", _LASTING))
        await send({"type": "http.response.start", "status": 200, "headers": kept})
        for begin in range(0, len(body), _PIECE):
            end = begin + _PIECE
            piece = {"body": body[begin:end], "more_body": end < len(body)}
            await send({"type": "http.response.body"} | piece)


def middleware() -> list:
    """What ``st.App`` wraps around its routes, within the door."""
    from starlette.middleware import Middleware

    return [Middleware(Assets)]


def _hashed() -> list[Path]:
    """Files that never change under their name, none of them empty."""
    return [f for f in (opening.STATIC / "static").rglob("*.*.*") if f.is_file() and f.stat().st_size]


@cache
def _content(file: Path) -> bytes:
    return file.read_bytes()


def _type(file: Path) -> bytes:
    kind = _TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return (f"{kind}; charset=utf-8" if kind.startswith("text/") else kind).encode()
