"""The whole chain of the fusion search on the CPU at a small size: bits, code, sweep, cost model,
search."""

import re

import pytest
from playwright.sync_api import expect
from settling import settled

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]
LONG = 240_000  # milliseconds that a job may take on a slow machine before the journey gives up
SETTING = "seq=16&heads=1&head_dim=32&compiler=none&on=here"


@pytest.mark.long
def test_from_sixteen_bits_to_the_fastest_layer(shared_server, page):
    page.goto(f"{shared_server.address}/fusion?{SETTING}&limit=24&evaluations=8&strategy=additive")
    page.get_by_text(re.compile("^Code: [01]{16}")).click()
    code = page.get_by_role("textbox", name="code")
    code.wait_for()
    code.fill("0011111010010110")
    code.press("Enter")
    page.get_by_text("16022 0 3 2 6 9 10 13 14").wait_for()
    page.get_by_role("button", name="11 FFN GEMM 1").click()
    expect(page).to_have_url(re.compile("code=0011111010011110"))
    page.get_by_text("The Python module").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download", exact=True).click()
    source = saved.value.path().read_text()
    assert "def layer(" in source and compile(source, "scheme.py", "exec")

    page.get_by_role("radio", name="Sweep").click()
    page.get_by_text("24 distinct schemes, about").wait_for()  # a second go finds the first one's chart too
    page.locator(".st-key-fusion-traverse_go button").click()
    page.get_by_test_id("stSidebar").get_by_role("button", name="Cancel").wait_for()
    page.get_by_role("button", name="Show the fastest scheme").wait_for(timeout=LONG)
    page.get_by_text("No job is running.").wait_for(timeout=LONG)
    expect(page).to_have_url(re.compile("traverse=[0-9]{8}-"))
    settled(page)
    with page.expect_download() as saved:
        page.get_by_role("button", name=re.compile("^Pairs")).click()
    pairs = saved.value.path().read_text().splitlines()
    assert 20 <= len(pairs) <= 24 and all(re.fullmatch(r"[01]{16}\t[0-9.e+-]+", line) for line in pairs)

    page.get_by_role("radio", name="Cost model").click()
    page.get_by_text("rank correlation").first.wait_for(timeout=LONG)
    page.get_by_text(re.compile(r"(High \(1\)|Low \(0\)), probability")).first.wait_for()

    page.get_by_role("radio", name="Search").click()
    page.locator(".st-key-fusion-search_go button").click()
    page.get_by_test_id("stMetricLabel").get_by_text("Best scheme").wait_for(timeout=LONG)
    page.get_by_text("No job is running.").wait_for(timeout=LONG)
    expect(page).to_have_url(re.compile("search="))
    page.get_by_text("this search has 8").wait_for()
    for title in ("Speed-up of the best scheme", "Best so far"):
        page.locator(".js-plotly-plot").filter(has_text=title).first.wait_for()
    page.reload()
    page.get_by_test_id("stMetricLabel").get_by_text("Best scheme").wait_for()
    expect(page.get_by_test_id("stException")).to_have_count(0)
    best = page.get_by_text(re.compile("^[01]{16}$")).first.inner_text()
    page.get_by_role("button", name="Show scheme").click()
    page.get_by_text(f"Code: {best}").click()
    page.get_by_text("translate").first.wait_for()
