"""The mode of the Kernels page that checks one function, as hasty visitors use it: typed and clicked at once,
clicked twice, reloaded, left and returned to."""

import re

import pytest
from playwright.sync_api import expect
from settling import settled

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]
LONG = 180_000  # milliseconds that a job may take on a slow machine
CORRECT = re.compile(r"mine\.py:add is correct \(worst error")


def started(server) -> list[str]:
    """The comparisons that were started, also those whose folder is being made."""
    return [path.name for path in server.profiles.glob("*bench*")]


@pytest.mark.long
def test_typed_and_clicked_at_once_twice_reloaded_and_returned_to(shared_server, page, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("def add(a, b):\n    return a + b\n")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{shared_server.address}/")
    page.get_by_role("link", name="Check my function").click()
    field = page.get_by_role("textbox", name="your Python file")
    button = page.get_by_role("button", name=re.compile("^Compare mine with eager"))
    field.wait_for()
    settled(page)
    before = started(shared_server)

    field.fill(str(tmp_path / "no.py"))
    button.click()
    page.get_by_text(re.compile(r"No file .*no\.py")).wait_for()
    assert started(shared_server) == before

    field.fill(str(mine))  # without Enter
    button.dblclick()
    expect(page).to_have_url(re.compile("run="))
    page.get_by_text("No job is running.").wait_for(timeout=LONG)
    said = page.get_by_text(CORRECT).first
    said.wait_for()
    settled(page)
    expect(said).to_be_in_viewport()
    assert len(started(shared_server)) == len(before) + 1

    address = page.url
    page.reload()
    page.get_by_text(CORRECT).first.wait_for()
    settled(page)
    assert page.url == address and page.get_by_text("This link names").count() == 0
    assert page.get_by_text("for other settings").count() == 0

    page.get_by_test_id("stSidebar").get_by_role("link", name="Help", exact=True).click()
    page.get_by_role("heading", name="Help").wait_for()
    settled(page)
    page.go_back()
    page.get_by_text(CORRECT).first.wait_for()
    expect(field).to_have_value(f"{mine}:add")
    assert len(started(shared_server)) == len(before) + 1

    page.get_by_role("radio", name="Compare implementations").click()
    page.get_by_role("button", name="Your own kernels (1)").wait_for()
    expect(page).not_to_have_url(re.compile("do=own"))
    assert page.get_by_test_id("stException").count() == 0
