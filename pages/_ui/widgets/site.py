"""Where the app lies below its host, which a reverse proxy may change."""

from __future__ import annotations

from streamlit import config


def root() -> str:
    """What every address of ours begins with: "/" and server.baseUrlPath, "" where there is none."""
    base = (config.get_option("server.baseUrlPath") or "").strip("/")
    return f"/{base}" if base else ""
