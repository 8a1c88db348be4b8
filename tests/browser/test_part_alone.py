"""A part of a page that is drawn again alone: the address follows it, and the rest of the page stays."""

import re

import pytest
from playwright.sync_api import expect
from settling import settled

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
_CHOSEN = 'button[data-variant="segmented_control"][aria-checked="true"]'


def _view(page, name: str) -> None:
    page.locator(f'.stMain button[data-variant="segmented_control"]:has-text("{name}")').first.click()


def test_a_view_is_sent_without_the_rest_of_the_page(recorded_server, page):
    messages = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda _: messages.append(1)))
    page.goto(recorded_server.address + "/masks")
    settled(page)
    sent = []
    for click in (lambda: _view(page, "Storage"), page.locator(".st-key-gallery button").nth(2).click):
        before, messages[:] = page.url, []
        click()
        page.wait_for_function("before => location.href !== before", arg=before, polling=100)
        settled(page)
        sent.append(len(messages))
    assert 0 < 2 * sent[0] < sent[1]


def test_a_view_changes_alone_and_the_address_with_it(recorded_server, page):
    page.goto(recorded_server.address + "/masks")
    page.locator(_CHOSEN).first.wait_for()
    for name in ("Balance", "Storage"):
        _view(page, name)
        expect(page).to_have_url(re.compile(f"view={name}$"))
        expect(page.locator(_CHOSEN).first).to_have_text(name)
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_test_id("stPopoverBody")).to_contain_text("/masks?view=Storage")
    page.keyboard.press("Escape")
    page.locator(".st-key-gallery button").nth(2).click()  # draws the whole page, the view as it was
    expect(page).to_have_url(re.compile(r"mask=\w+&view=Storage$|view=Storage&mask=\w+$"))
    _view(page, "Balance")
    expect(page).to_have_url(re.compile("mask=.*view=Balance$|view=Balance.*mask="))
    page.go_back()
    expect(page.locator(_CHOSEN).first).to_have_text("Storage")
    page.reload()
    expect(page.locator(_CHOSEN).first).to_have_text("Storage")
    expect(page.get_by_text(re.compile("Ignored .* from the URL"))).to_have_count(0)


def test_another_case_of_a_model_changes_sentence_chart_and_view_alone(recorded_server, page):
    """The sentence stands above the part, in the page."""
    messages = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda _: messages.append(1)))
    page.goto(recorded_server.address + "/models?model=bert-base")
    settled(page)
    whole, messages[:] = len(messages), []
    sentence = page.locator(".stMain p", has_text=re.compile("(is|are) correct")).first
    said = sentence.inner_text()
    page.get_by_role("combobox", name="case").click()
    page.get_by_role("option", name=re.compile("lengths=uniform")).first.click()
    expect(page).to_have_url(re.compile("case=.*uniform"))
    expect(sentence).not_to_have_text(said)
    settled(page)
    assert 0 < 2 * len(messages) < whole
    page.reload()
    settled(page)
    expect(page.get_by_role("combobox", name="case")).to_have_value(re.compile("lengths=uniform"))


def test_a_press_in_a_part_that_changes_the_form_draws_the_page(recorded_server, page):
    """The fastest scheme of another layer's sweep: the form is the layer that it was measured on."""
    page.goto(recorded_server.address + "/fusion?part=Sweep")
    settled(page)
    _view(page, "Scheme")
    settled(page)
    _view(page, "Sweep")
    settled(page)
    run = page.locator("[class*=st-key-fusion-traverse] input").first
    batch = page.get_by_label("batch, typed").first
    before = page.url, batch.input_value()
    run.click()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("before => location.href !== before", arg=before[0], polling=100)
    settled(page)
    page.get_by_role("button", name="Show the fastest scheme").click()
    expect(batch).not_to_have_value(before[1])
    expect(page.locator(_CHOSEN).first).to_have_text("Scheme")
    expect(page).to_have_url(re.compile(r"batch=\d+.*code=[01]{16}"))
