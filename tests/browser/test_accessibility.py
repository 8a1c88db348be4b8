"""Every page for everybody: axe-core finds nothing serious in either theme, and keys alone suffice."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from settling import settled

from fusescope.core.paths import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
PAGES = ["/", *sorted(f"/{f.stem}" for f in (ROOT / "pages").glob("[!_]*.py"))]
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_violation_on_any_page(recorded_server, chromium, theme):
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, color_scheme=theme)
    page, found = context.new_page(), {}
    page.goto(recorded_server.with_token(f"{recorded_server.address}/"))
    for path in PAGES:
        page.goto(recorded_server.address + path)
        settled(page)
        for violation in Axe().run(page, options=RULES).response["violations"]:
            if violation["impact"] in ("serious", "critical"):
                nodes = [node["html"][:120] for node in violation["nodes"][:3]]
                found[f"{path} {violation['id']}"] = nodes
    context.close()
    assert not found


def test_a_key_opens_what_home_offers(recorded_server, page):
    """From the top by Tab: every stop is visible, and Enter on the first door leads to Kernels."""
    page.goto(recorded_server.address + "/")
    settled(page)
    page.locator("body").press("Tab")
    for _ in range(80):
        at = page.evaluate(
            """() => {
                const e = document.activeElement, box = e.getBoundingClientRect();
                return [e.innerText || '', box.width * box.height > 0]
            }"""
        )
        assert at[1], "an invisible element takes the focus"
        if at[0].startswith("Compare kernels"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/kernels"))


def test_a_cell_of_the_attention_map_is_chosen_by_keys(recorded_server, page):
    page.goto(recorded_server.address + "/attention")
    settled(page)
    box = page.get_by_role("combobox", name=re.compile("cell, slowest first"))
    box.focus()
    box.press("ArrowDown")
    box.press("ArrowDown")
    box.press("Enter")
    expect(page).to_have_url(re.compile("cell="))
