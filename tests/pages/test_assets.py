"""Streamlit's own files, from memory: as they lie on disk, for ever, and only whole."""

import asyncio

import pytest

from pages._ui.guard import opening
from pages._ui.routes import assets

PLOTLY = next((opening.STATIC / "static" / "js").glob("PlotlyChart.*.js"))
PATH = f"/static/js/{PLOTLY.name}"


def ask(path: str, method: str = "GET", **headers: str) -> list[dict]:
    """What is sent; a lone "inner" where the app behind is asked."""
    sent: list[dict] = []

    async def inner(_scope, _receive, send):
        await send({"type": "inner"})

    async def send(message):
        sent.append(message)

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": given}
    asyncio.run(assets.Assets(inner)(scope, None, send))
    return sent


def test_a_file_is_what_lies_on_disk_and_may_be_kept():
    begun, *pieces = ask(PATH, accept_encoding="gzip")
    said = dict(begun["headers"])
    assert b"".join(p["body"] for p in pieces) == PLOTLY.read_bytes()
    assert [p["more_body"] for p in pieces] == [True] * (len(pieces) - 1) + [False]
    assert int(said[b"content-length"]) == PLOTLY.stat().st_size and b"immutable" in said[b"cache-control"]
    assert said[b"content-type"] == b"text/javascript; charset=utf-8"


@pytest.mark.parametrize("path", ["/", "/static/js/nothing.js", "/static/js/../../index.html", "/index.html"])
def test_what_is_no_such_file_is_streamlits(path):
    assert ask(path) == [{"type": "inner"}]


def test_a_part_of_a_file_and_other_methods_are_streamlits():
    assert ask(PATH, range="bytes=0-9") == ask(PATH, if_none_match='"x"') == [{"type": "inner"}]
    assert ask(PATH, "HEAD") == ask(PATH, "POST") == [{"type": "inner"}]


def test_all_that_the_first_html_names_comes_from_memory():
    files = assets.Assets(None).files
    named = [p for p in opening.html().split('"') if p.startswith("./static/")]
    assert len(named) > 50 and all(p[1:] in files for p in named)
