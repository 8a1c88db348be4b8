"""Which names the app answers to, and which pages may talk to it.

A page elsewhere can let its own name point at 127.0.0.1, so that the browser takes us for its server: the
Host header then holds that name. Addresses are safe, because nobody can let an address point elsewhere.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_][a-z0-9_.-]*)(?::([0-9]{1,5}))?", re.IGNORECASE)
_ALWAYS = ("localhost", "*.localhost", "127.0.0.1", "::1")


def split(host: str) -> tuple[str, int | None] | None:
    """(name in small letters without brackets and final dot, port) of a Host header; None where it is no
    host."""
    found = _HOST.fullmatch(host)
    if found is None or int(found[2] or 0) > 65535:
        return None
    return found[1].lower().strip("[]").rstrip("."), int(found[2]) if found[2] else None


def same_address(a: str, b: str) -> bool:
    """Whether two texts are the same IP address; ::ffff:127.0.0.1 is 127.0.0.1."""
    try:
        x, y = ipaddress.ip_address(a), ipaddress.ip_address(b)
    except ValueError:
        return False
    return (getattr(x, "ipv4_mapped", None) or x) == (getattr(y, "ipv4_mapped", None) or y)


@dataclass(frozen=True)
class Names:
    """The names that may be in the Host header: the machine's own loopback names, and ``further``."""

    further: tuple[str, ...] = ()

    @classmethod
    def of(cls, further: Iterable[str | None]) -> Names:
        return cls(tuple(n.strip().lower().strip("[]").rstrip(".") for n in further if n and n.strip()))

    def serve(self, host: str, reached: str) -> bool:
        """Whether a request with this Host is answered; ``reached`` is our address on its connection."""
        parts = split(host)
        if parts is None:
            return False
        name = parts[0]
        return same_address(name, reached) or any(_fits(name, p) for p in (*_ALWAYS, *self.further))


def _fits(name: str, pattern: str) -> bool:
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return name.endswith(pattern[1:])
    return name == pattern or same_address(name, pattern)


def same_origin(origin: str, host: str, encrypted: bool) -> bool:
    """Whether a page with this Origin is one of ours: the same name and the same port as in Host. Behind TLS
    only https is."""
    try:
        given = urlsplit(origin)
    except ValueError:
        return False
    schemes = ("https",) if encrypted else ("http", "https")
    bare = not (given.path or given.query or given.fragment)
    return bare and given.scheme in schemes and given.netloc.lower() == host.lower()
