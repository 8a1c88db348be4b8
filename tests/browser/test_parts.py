"""A view that is chosen is drawn alone: the address, the link to copy and what belongs to the page hold."""

import re

import pytest
from playwright.sync_api import expect
from settling import settled

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]


def view(page, name: str):
    return page.get_by_role("radio", name=name, exact=True)


def test_a_view_is_in_the_address_the_link_and_after_a_reload(recorded_server, page):
    page.goto(recorded_server.address + "/kernels")
    settled(page)
    view(page, "Roofline").click()
    expect(page).to_have_url(re.compile("view=Roofline"))
    view(page, "Accuracy").click()
    expect(page).to_have_url(re.compile("view=Accuracy"))
    settled(page)
    expect(page.get_by_text("Worst over fresh random inputs")).to_be_visible()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text(re.compile("view=Accuracy"))).to_be_visible()
    expect(page.get_by_text(re.compile("view=Roofline"))).to_have_count(0)
    page.keyboard.press("Escape")
    page.go_back()
    expect(view(page, "Roofline")).to_be_checked()
    settled(page)
    page.reload()
    settled(page)
    expect(view(page, "Roofline")).to_be_checked()
    view(page, "Table").click()
    expect(page).not_to_have_url(re.compile("view="))


def test_what_one_part_kept_leaves_the_address_with_it(recorded_server, page):
    page.goto(recorded_server.address + "/profiler?view=Tables&order=name")
    settled(page)
    expect(page).to_have_url(re.compile("order=name"))
    view(page, "Overview").click()
    expect(page).not_to_have_url(re.compile("order="))
    expect(page).to_have_url(re.compile("run="))


def test_a_click_in_a_part_that_concerns_the_page_draws_the_page(recorded_server, page):
    """The format of images is that of the large chart too, which stands above the part."""
    page.goto(recorded_server.address + "/kernels?view=Times")
    settled(page)
    above = page.locator("[class*='st-key-chart-'][class*='-speedup-']")
    expect(above).to_have_class(re.compile("-png"))
    view(page, "Accuracy").click()
    settled(page)
    page.get_by_role("button", name="Images as SVG").last.click()
    expect(above).to_have_class(re.compile("-svg"))
    expect(page).to_have_url(re.compile("view=Accuracy"))
