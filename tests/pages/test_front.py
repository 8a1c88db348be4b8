"""The HTML that a browser opens first: ours for every page, with scripts that its policy allows."""

import re

from fusescope.core.paths import ROOT
from pages._ui.guard import headers, opening
from pages._ui.routes import front


def test_every_page_opens_with_our_html():
    paths = {route.path for route in front.routes()}
    assert paths == {"/", *(f"/{f.stem}" for f in (ROOT / "pages").glob("[!_]*.py"))}


def test_the_browser_is_told_where_to_connect_by_a_script_that_may_run():
    told = next(s for s in opening.scripts() if "BACKEND_BASE_URL" in s)
    assert "HOST_CONFIG" in told and "allowedOrigins:[location.origin]" in told
    assert headers.hashed(told) in headers.page_policy("127.0.0.1:8501")


def test_parts_named_in_the_head_exist_and_are_named_once():
    named = re.findall(r'rel="modulepreload" crossorigin href="\./(static/js/[^"]+)"', opening.html())
    assert any("PlotlyChart" in name for name in named)
    assert len(named) == len(set(named)) and all((opening.STATIC / name).is_file() for name in named)
