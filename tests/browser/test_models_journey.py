"""The Models page in a real browser: a tiny model run and judged, its parameters, a reload; and the scores of
one on the Masks page."""

import re

import pytest
from playwright.sync_api import expect
from settling import settled

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]
LONG = 180_000  # milliseconds a job may take on a slow machine before the journey gives up
TINY = "/models?model=bert-small&layers=1&heads=1&head_dim=16&seq=16&impl=eager,sdpa&within=5"


@pytest.mark.long
def test_a_model_is_measured_judged_and_found_again(shared_server, page):
    page.goto(shared_server.address + TINY)
    page.get_by_text("has not been measured here yet").wait_for()
    page.get_by_text("1 case × 2 execution modes").wait_for()
    page.locator(".st-key-models-run button").click()
    chart = page.locator(".st-key-result .js-plotly-plot").first
    chart.get_by_text(re.compile("baseline")).first.wait_for(timeout=LONG)
    page.get_by_text("No job is running.").wait_for(timeout=LONG)
    expect(page).to_have_url(re.compile("run="))
    address = page.url

    page.get_by_role("radio", name="Accuracy").click()
    page.get_by_role("button", name="Check accuracy").click()
    page.get_by_text("✓ within tolerance").first.wait_for(timeout=LONG)
    page.get_by_text("Error by depth").first.wait_for()
    page.get_by_text("nowhere: their errors").wait_for()

    page.get_by_role("radio", name="Parameters").click()
    page.get_by_text("Parameters of BERT small").wait_for()

    page.goto(address)
    page.locator(".st-key-result .js-plotly-plot").first.get_by_text(re.compile("baseline")).first.wait_for()
    assert (
        page.get_by_text("for other settings").count() == 0
        and page.get_by_test_id("stException").count() == 0
    )


@pytest.mark.long
def test_the_scores_of_a_model_are_looked_at(shared_server, page):
    page.goto(shared_server.address + "/masks?view=Scores&seq=64&s_model=bert-small&s_seq=24")
    settled(page)
    page.get_by_role("button", name="Analyse attention scores").click()
    page.get_by_text("say nothing about a trained model").wait_for(timeout=LONG)
    for title in ("Skippable tiles and the resulting error", "Probabilities of head 0"):
        page.locator(".js-plotly-plot").filter(has_text=title).first.wait_for()
    assert page.get_by_text("effective keys").count() == 0  # no headline figure from random weights
    assert page.get_by_test_id("stException").count() == 0
