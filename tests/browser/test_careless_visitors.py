"""Visitors who mistype, press twice, reload, come with a function that is wrong, or have no mouse."""

import re

import pytest
from playwright.sync_api import expect
from settling import settled

from fusescope.store import folder

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]
LONG = 180_000  # milliseconds that a job may take on a slow machine


def runs(server) -> set[str]:
    return {path.name for path in server.profiles.glob("*-bench-*")}


def finished(page) -> None:
    page.get_by_test_id("stSidebar").get_by_text("No job is running.").wait_for(timeout=LONG)


def test_a_wrong_address_is_named_part_by_part_and_the_page_drawn(recorded_server, page):
    page.goto(recorded_server.address + "/kernels?heads=-3&view=Nonsense&foo=1&impl=v3_hoper")
    settled(page)
    for ignored in ("heads=-3", "view=Nonsense", "foo=1", "impl=v3_hoper"):
        expect(page.get_by_text(f"Ignored {ignored} from the URL")).to_be_visible()
    expect(page).not_to_have_url(re.compile("-3|Nonsense|foo|hoper"))


def test_a_number_out_of_bounds_cannot_be_run(recorded_server, page):
    page.goto(recorded_server.address + "/kernels")
    settled(page)
    box = page.get_by_role("textbox", name="heads, typed", exact=True)
    box.fill("-5")
    box.press("Enter")
    expect(page.get_by_text(re.compile("from 1 to 4,096, not -5")).first).to_be_visible()
    expect(page.locator(".st-key-kernels-run button")).to_be_disabled()


@pytest.mark.long
def test_pressing_twice_and_reloading_leave_one_run(shared_server, page):
    before = runs(shared_server)
    page.goto(shared_server.address + "/kernels?op=add&impl=eager,cpu&n=65536&within=5")
    settled(page)
    page.locator(".st-key-kernels-run button").dblclick()
    page.get_by_test_id("stSidebar").get_by_role("button", name="Cancel").wait_for()
    page.reload()
    settled(page)
    finished(page)
    page.locator(".st-key-result .js-plotly-plot").first.get_by_text(re.compile("baseline")).first.wait_for()
    assert len(runs(shared_server) - before) == 1


@pytest.mark.long
def test_a_wrong_function_of_ones_own_is_called_wrong(shared_server, page, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def softmax(x):\n    e = (x - x.amax(-1, True)).exp()\n    return e / (e.sum(-1, True) + 0.01)\n"
    )
    page.goto(shared_server.address + "/kernels?op=softmax&rows=64")
    settled(page)
    page.get_by_role("button", name="Add your own kernel").click()
    box = page.get_by_role("textbox", name="file.py:function")
    box.fill(f"{mine}:softmax")
    box.press("Enter")
    page.keyboard.press("Escape")
    page.get_by_text("1 case × 2 implementations").wait_for()
    page.locator(".st-key-kernels-run button").click()
    page.get_by_text(re.compile("mine.py:softmax is wrong and was not timed: .* out of tolerance")).wait_for(
        timeout=LONG
    )
    finished(page)
    name = re.search(r"run=([\w-]+)", page.url)[1]
    (own,) = [r for r in folder.records(shared_server.profiles / name) if r.impl != "eager"]
    assert own.status == "wrong" and own.ms is None


@pytest.mark.long
def test_a_comparison_by_keys_alone(shared_server, page):
    """From Home by Tab, Enter, typing and Ctrl+Enter."""
    page.goto(shared_server.address + "/")
    settled(page)
    page.locator("body").press("Tab")
    _tab_to(page, "Compare kernels")
    page.keyboard.press("Enter")
    page.wait_for_url("**/kernels*")
    settled(page)
    _tab_to(page, "operator")
    for keys in ("Control+A", *"Tensor add"):
        page.keyboard.press(keys)
    page.get_by_role("option", name="Tensor add").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**op=add**")
    settled(page)
    _tab_to(page, "implementations")
    page.keyboard.press("Backspace")  # the last one, torch.compile: its compilation is nothing for fingers
    page.wait_for_url("**impl=cpu%2Ceager**")
    settled(page)
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**run=**")  # until then a recorded run is shown, and no job is there
    page.locator(".st-key-result .js-plotly-plot").first.get_by_text(re.compile("baseline")).first.wait_for(
        timeout=LONG
    )
    finished(page)


def _tab_to(page, name: str) -> None:
    """Press Tab until what has this name has the focus."""
    named = """name => {
        const e = document.activeElement;
        return (e.innerText || e.getAttribute('aria-label') || '').startsWith(name)
    }"""
    for _ in range(80):
        if page.evaluate(named, name):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not lead to {name}")
