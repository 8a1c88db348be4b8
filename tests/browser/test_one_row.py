"""What must fit on one line at 1440 pixels."""

import re

import pytest
from settling import settled

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("address", "role", "names"),
    [
        ("/?about=llama3-8b", "combobox", ("What is fastest for", "device")),
        (
            "/?about=llama3-8b&mask-causal=bigbird",
            "combobox",
            ("What is fastest for", "device"),
        ),
        ("/?about=attention", "combobox", ("What is fastest for", "device")),
        ("/models", "radio", ("Table", "Reproduce")),
    ],
)
def test_a_row_of_controls_is_one_row(recorded_server, page, address, role, names):
    """The box of the device, and the last of the views, stood alone on a line of their own."""
    page.goto(recorded_server.address + address)
    settled(page)
    first, last = (page.get_by_role(role, name=name, exact=True).first.bounding_box() for name in names)
    assert first["y"] == last["y"], (first, last)


CLIPPED = "inputs => inputs.filter(i => i.scrollWidth > i.clientWidth + 1).map(i => i.value)"
CUT = "rows => rows.filter(r => r.scrollWidth > r.clientWidth + 1).map(r => r.innerText)"


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/?about=attention_varlen", "What is fastest for"),
        ("/?about=bert-base", "What is fastest for"),
        ("/models?model=llama-small", "model"),
        ("/kernels?op=attention_varlen", "operator"),
        ("/runs", "operator"),
    ],
)
def test_no_name_is_cut_short(recorded_server, page, address, name):
    """ "Attention, decodi…" in a select box, and longer names in its list."""
    page.goto(recorded_server.address + address)
    settled(page)
    assert page.get_by_role("combobox").evaluate_all(CLIPPED) == []
    page.get_by_role("combobox", name=name, exact=True).click()
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("End")  # the list draws what is in sight
    assert page.locator("[role=option] *").evaluate_all(CUT) == []


def test_the_name_of_a_case_is_read_at_1024_pixels(recorded_server, page):
    """ "batch=1, seq=128, len…": the box stood beside that of the baseline, in half a column."""
    page.set_viewport_size({"width": 1024, "height": 900})
    page.goto(recorded_server.address + "/models")
    settled(page)
    assert page.get_by_role("combobox", name="case").evaluate_all(CLIPPED) == []


_FADED = "e => getComputedStyle(e).maskImage !== 'none'"


def _wide_chart(page):
    """The first chart that may be wider than its place, drawn."""
    chart = page.locator('[class*="st-key-wide-chart"]').first
    chart.locator(".main-svg").first.wait_for()
    page.wait_for_timeout(300)
    return chart


@pytest.mark.parametrize(("pixels", "faded"), [(400, True), (1440, False)])
def test_the_edge_of_a_chart_that_scrolls_sideways_fades_until_its_end(recorded_server, page, pixels, faded):
    page.set_viewport_size({"width": pixels, "height": 900})
    page.goto(recorded_server.address + "/profiler?view=Timeline")
    settled(page)
    chart = _wide_chart(page)
    assert chart.evaluate(_FADED) == faded
    chart.evaluate("e => e.scrollTo(e.scrollWidth, 0)")
    page.wait_for_timeout(300)
    assert not chart.evaluate(_FADED)


def test_what_stands_under_a_chart_that_scrolls_is_whole(recorded_server, page):
    """ "Images as SVG" was under the chart's fading edge."""
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(recorded_server.address + "/attention?chart=rates")
    settled(page)
    chart = _wide_chart(page)
    assert chart.evaluate(_FADED) and chart.get_by_role("button").filter(has_text="Images").count() == 0
    page.get_by_role("button", name="Images as SVG").first.click(timeout=5000)


def test_on_a_phone_a_cell_of_the_map_has_its_names_in_sight(recorded_server, page):
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(recorded_server.address + "/attention")
    settled(page)
    assert page.locator('[class*="st-key-wide-chart"]').count() == 0
    names = page.locator(".xtick text, .ytick text").filter(has_text=re.compile("strided|8×12×4096×64"))
    names.first.wait_for()
    assert names.count() == 2
    for box in (name.bounding_box() for name in names.all()):
        assert box["x"] >= 0 and box["x"] + box["width"] <= 400
    page.get_by_text("rates", exact=True).click()
    settled(page)
    assert page.get_by_text("Rate of our best kernel").count() == 1


@pytest.mark.parametrize("document", ["own-kernel", "reliability", "internals/scaling"])
def test_a_documents_tables_scroll_in_a_narrow_window(recorded_server, page, document):
    """The whole page scrolled sideways."""
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(f"{recorded_server.address}/help?doc={document}")
    settled(page)
    page.locator(".stMarkdown table").first.wait_for()
    # its fonts may come after the table
    fits = "() => (main => main.scrollWidth === main.clientWidth)(document.querySelector('.stMain'))"
    page.wait_for_function(fits)
