"""Questions people come with, from the front page to the answer: few actions, the answer at first sight."""

import re

import pytest
from playwright.sync_api import expect
from settling import choose

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.mark.long
def test_which_attention_for_packed_bert_and_how_much_faster_than_sdpa(recorded_server, page):
    """BERT base at (16, 512) is what Home opens with: one action, padded."""
    page.goto(recorded_server.address + "/")
    choose(page, "lengths", "unequal (mean 0.6)")
    alone = page.get_by_text(re.compile(r"Attention alone: \w+, [\d.]+ µs: [\d.]+× \[.*\] sdpa \("))
    alone.wait_for()
    page.get_by_text(re.compile(r"Whole BERT base: \w+, [\d.]+ ms: [\d.]+× \[.*\] sdpa \(")).wait_for()
    expect(page.get_by_text(re.compile("Measured on NVIDIA H200")).first).to_be_visible()
    page.get_by_role("link", name="All implementations and intervals").first.click()
    expect(page).to_have_url(re.compile("/kernels.*run="))
    page.get_by_text(re.compile(r"v3_hopper is correct and fastest: [\d.]+×")).wait_for()
    expect(page.get_by_text(re.compile("Ignored .* from the URL"))).to_have_count(0)


@pytest.mark.long
def test_tokens_per_second_of_a_model_that_nobody_measured(recorded_server, page):
    page.goto(recorded_server.address + "/?about=llama3-8b&phase=decode&batch=1&seq=4096&dtype=bfloat16")
    page.get_by_text(re.compile("not recorded")).first.wait_for()
    expect(page.get_by_text(re.compile(r"At batch 1 at most [\d.,]+ tokens/s"))).to_be_visible()
    expect(page.get_by_text(re.compile(r"GiB of minimum traffic at [\d.]+ TB/s"))).to_be_visible()


@pytest.mark.long
def test_how_much_faster_bigbird_is_at_4096(recorded_server, page):
    """From the Attention page: the mask, the shape, and every implementation against the chosen peer."""
    page.goto(recorded_server.address + "/attention")
    choose(page, "mask", "bigbird")
    choose(page, "shape", "8×12×4096×64")
    page.get_by_text(re.compile(r"Geometric mean [\d.]+× over 1 cell")).wait_for()
    choose(page, "compared with", "flex")
    page.get_by_text(re.compile(r"is correct and (fastest|has the lowest time): [\d.]+× flex \[")).wait_for()
    expect(page).to_have_url(re.compile("mask=bigbird.*shape=8"))
