"""Headers of every answer: no framing, no guessing of types, and only our own files
run in it."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from pages._ui.guard import opening

_ALWAYS = {
    b"x-frame-options": b"SAMEORIGIN",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
DOWNLOAD = "default-src 'none'; frame-ancestors 'self'; sandbox"
"""The policy of a file that a browser saves: an imported run may hold anything."""


def hashed(text: str) -> str:
    """A source expression that allows exactly this inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _inline_scripts() -> str:
    """The scripts within the page that opens, and Streamlit's own for an address that is no page of ours."""
    return " ".join(map(hashed, opening.scripts()))


def page_policy(host: str) -> str:
    """The Content-Security-Policy of pages. Streamlit makes styles while it draws; no script runs that is not
    a file of ours, and nothing is asked of another machine. ``host`` is a Host header that was checked;
    older browsers do not count a WebSocket as 'self'."""
    sockets = "" if "[" in host else f" ws://{host} wss://{host}"  # such an address is no source expression
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' {_inline_scripts()}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "media-src 'self' data: blob:",
            "worker-src 'self' blob:",
            f"connect-src 'self'{sockets}",
            "frame-src 'self'",
            "manifest-src 'self'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'self'",
        )
    )


def complete(given: list[tuple[bytes, bytes]], policy: str) -> list[tuple[bytes, bytes]]:
    """The headers of an answer with ours; a route's own Content-Security-Policy stays."""
    names = {name.lower() for name, _ in given}
    ours = _ALWAYS | {b"content-security-policy": policy.encode()}
    return [*given, *((name, value) for name, value in ours.items() if name not in names)]
