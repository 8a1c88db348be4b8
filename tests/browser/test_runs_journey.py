"""The list of runs: one click opens a run where the list was."""

import re

import pytest
from playwright.sync_api import expect
from settling import settled

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def test_one_click_opens_a_run_in_the_same_tab(recorded_server, page):
    """It took two, and the run came in a tab of its own."""
    page.goto(recorded_server.address + "/runs")
    grid = page.get_by_test_id("stDataFrame").first
    grid.wait_for()
    settled(page)
    second = grid.locator("table tr[aria-rowindex='3'] td").all_inner_texts()
    corner, tabs = grid.locator("canvas").first.bounding_box(), len(page.context.pages)
    page.mouse.click(corner["x"] + 32 + 27, corner["y"] + 36 + 32 + 16)
    expect(page).to_have_url(re.compile(r"/runs\?run="))
    page.get_by_text("‹ All runs").first.wait_for()
    title = next(text.rstrip("…") for text in second if len(text) > 12)
    page.get_by_text(title).first.wait_for()
    assert len(page.context.pages) == tabs
