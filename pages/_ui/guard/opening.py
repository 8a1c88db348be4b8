"""The HTML that a browser opens first: Streamlit's own with two things added, so that it is drawn sooner, and
a cookie that says how wide the window is.

Streamlit's page asks ``<page>/_stcore/health`` (a 404 for every page but home), then ``/_stcore/health`` and
host-config, and only then connects. A script tells it beforehand where the server is and what host-config
would say, as ``window.__streamlit`` is there for. Parts of the page that Streamlit fetches when the first
element of a kind arrives, plotly.js above all, are named in the head: they load while the server draws.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import streamlit

from pages._ui.widgets import screen, site

STATIC = Path(streamlit.__file__).parent / "static"
_PARTS = ("PlotlyChart", "Selectbox", "ButtonGroup", "PageLink", "TextInput", "Html")
"""Streamlit's chunks of the elements that pages begin with; one that a version does not have is left out."""
_WIDTH = (
    "(()=>{{const say=()=>{{document.cookie={name}+{path}.replace('{{}}',innerWidth)}};"
    "say();addEventListener('resize',say)}})();"
)
_IMPORTED = re.compile(r"""from\s*["']\./([\w.-]+\.js)["']""")
_HEAD = 1 << 14  # characters of a chunk that hold its imports


@cache
def html() -> str:
    """The page, the same for every address of the app."""
    page = (STATIC / "index.html").read_text("utf-8")
    parts = "".join(
        f'<link rel="modulepreload" crossorigin href="./static/js/{name}">' for name in _parts(page)
    )
    page = page.replace("<head>", f"<head><script>{_told()}</script>", 1)
    return page.replace("</head>", f"{parts}</head>", 1)


def scripts() -> list[str]:
    """The inline scripts of ``html``."""
    return re.findall(r"<script>(.*?)</script>", html(), re.DOTALL)


def _told() -> str:
    """Nobody may frame the app from elsewhere, so the one origin whose messages count is its own; Streamlit
    takes no empty list here."""
    path = json.dumps(f"={{}};path={site.root()}/;samesite=strict")
    return (
        f"{_WIDTH.format(name=json.dumps(screen.COOKIE), path=path)}"
        f"window.__streamlit={{BACKEND_BASE_URL:location.origin+{json.dumps(site.root() + '/')},"
        "HOST_CONFIG:{allowedOrigins:[location.origin],useExternalAuthToken:false,"
        "enableCustomParentMessages:false,enforceDownloadInNewTab:false,metricsUrl:'',"
        "blockErrorDialogs:false}}"
    )


def _parts(page: str) -> list[str]:
    """The chunks of _PARTS and what they import that ``page`` does not name already."""
    home, wanted = STATIC / "static" / "js", []
    waiting = [f.name for part in _PARTS for f in sorted(home.glob(f"{part}.*.js"))[:1]]
    while waiting:
        name = waiting.pop(0)
        if name in wanted or name in page or not (home / name).is_file():
            continue
        wanted.append(name)
        with (home / name).open(encoding="utf-8") as chunk:
            waiting += _IMPORTED.findall(chunk.read(_HEAD))
    return wanted
