"""The Fusion page on the searches and sweeps that ship with the project."""

import pytest
from drawn_page import said

from pages._ui.app import run_data
from pages._ui.fusion import runs, search

SEARCH, SWEEP = "20261122-101037-search-9e3eaa", "20261122-103045-traverse-5d2e58"


@pytest.mark.usefixtures("recorded")
def test_a_search_says_what_the_sweep_of_its_layer_found(draw):
    """Its own time of the scheme is another one: another GPU, sampled for longer."""
    text = said(draw("fusion", part="Search", search=SEARCH).caption)
    assert f"[sweep of 520 schemes](/runs?run={SWEEP})" in text and "another NVIDIA H200, 22 Nov 2026" in text
    assert "`1001111110001101` fastest, 1.18 ms there; this scheme took 1.18 ms there, 0.339 % longer" in text


@pytest.mark.usefixtures("recorded")
def test_where_the_sweep_agrees_and_where_it_has_no_such_scheme():
    run, (first, *_) = run_data.read(SEARCH), runs.fastest(SWEEP)
    assert search._in_sweep(run, first).endswith("finds the same scheme fastest, 1.18 ms there.")
    assert search._in_sweep(run, "no such code").endswith("it did not measure this scheme.")


@pytest.mark.usefixtures("recorded")
def test_another_layer_shows_its_own_fastest_scheme_until_one_was_chosen(draw):
    """The fastest at (16, 2048) stayed for (8, 512): "Rank 3, 1.00× the time of the fastest"."""
    at = draw("fusion")
    fastest = at.session_state["fusion/valid"]
    _layer(at, 8, 512)
    assert at.session_state["fusion/valid"] != fastest
    assert "Fastest of 520 measured schemes" in said(at.markdown)
    [button.click() for button in at.button if button.label == "Fully unfused"]
    at.run()
    chosen = at.session_state["fusion/valid"]
    _layer(at, 16, 2048)
    assert at.session_state["fusion/valid"] == chosen != fastest


def _layer(at, batch: int, seq: int) -> None:
    for label, value in (("batch, typed", batch), ("sequence, typed", seq)):
        next(box for box in at.text_input if box.label == label).set_value(str(value))
    at.run()
