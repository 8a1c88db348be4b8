"""Charts that say their margins themselves and draw one of their invisible points: no label is cut, and a
click or a box is found by the data."""

import re

import pytest
from playwright.sync_api import expect
from settling import settled

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
_CUT = """() => [...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => {
  const paper = plot.querySelector('.main-svg').getBoundingClientRect();
  return [...plot.querySelectorAll('.xtick text, .ytick text, .xtitle, .ytitle')].filter(text => {
    const at = text.getBoundingClientRect();
    return at.width && (at.left < paper.left - 1 || at.right > paper.right + 1
      || at.bottom > paper.bottom + 1);
  }).map(text => text.textContent);
})"""

_COVERED = """() => [...document.querySelectorAll('.st-key-result .modebar')].flatMap(bar => {
  const over = bar.getBoundingClientRect();
  return [...document.querySelectorAll('.st-key-result p, .st-key-result td')].filter(text => {
    const at = text.getBoundingClientRect();
    return at.top < over.bottom && at.bottom > over.top && at.left < over.right && at.right > over.left;
  }).map(text => text.textContent);
})"""


def opened(page, address: str):
    """The page at an address, with its first large chart drawn: the area that takes clicks."""
    page.goto(address)
    settled(page)
    area = page.locator(".js-plotly-plot .nsewdrag[width]").last
    area.wait_for()
    return area


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "place",
    ["attention", "attention?chart=worst+first", "masks?seq=16384", "masks?view=Balance"]
    + ["models?show=all+models", "fusion?part=Sweep"],
)
def test_no_label_is_cut(recorded_server, page, place):
    opened(page, f"{recorded_server.address}/{place}")
    assert page.evaluate(_CUT) == []


def test_a_cell_of_the_models_is_chosen_by_a_click(recorded_server, page):
    opened(page, f"{recorded_server.address}/models?show=all+models")
    page.locator(".js-plotly-plot").first.get_by_text("▲").nth(9).click(force=True)
    expect(page).to_have_url(re.compile("cell="))


@pytest.mark.parametrize("query", ["", "?with=causal"])
def test_the_buttons_of_a_mask_cover_no_text(recorded_server, page, query):
    page.set_viewport_size({"width": 1440, "height": 1000})
    opened(page, f"{recorded_server.address}/masks{query}")
    page.get_by_text("Draw a box to zoom in").wait_for()
    assert page.evaluate(_COVERED) == []


@pytest.mark.long
def test_a_box_on_a_mask_zooms_in(recorded_server, page):
    opened(page, f"{recorded_server.address}/masks")
    box = page.locator(".st-key-result .js-plotly-plot .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 160, steps=8)
    page.mouse.up()
    expect(page).to_have_url(re.compile("region="))
