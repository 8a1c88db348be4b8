"""A comparison that has not ended: what is shown before its first record, and that it is drawn then."""

import dataclasses

import folders
import pytest
import synthetic
from drawn_page import query

from pages._ui.answer import answer
from pages._ui.app import run_data


@pytest.mark.parametrize("records", [0, 2])
def test_a_running_comparison_offers_views_once_there_is_a_record(draw, profiles, monkeypatch, records):
    """Nine buttons stood over nothing; what the address says of them is kept."""
    run = synthetic.run("20261120-104200-bench-abc123")
    folders.write(profiles, run, synthetic.point()[:records])
    read = lambda run_id, real=run_data.read: dataclasses.replace(real(run_id), status="running")  # noqa: E731
    monkeypatch.setattr(run_data, "read", read)
    at = draw("kernels", op="attention", run=run.id, view="Accuracy")
    assert [e.label for e in at.main if e.type == "button_group" and "view" in str(e.proto.id)] == [
        "view"
    ] * (records > 0)
    assert query(at)["view"] == "Accuracy"


@pytest.mark.parametrize("begun, drawn", [(False, 1), (True, 0)])
def test_the_first_record_has_the_page_drawn_once_more(monkeypatch, begun, drawn):
    asked, bodies = [], []
    monkeypatch.setattr(answer.jobs, "follow", lambda run_id, head, body, cancel: bodies.append(body))
    monkeypatch.setattr(answer.redraw, "whole_page", lambda: asked.append(1))
    monkeypatch.setattr(answer.run_data, "records", lambda run_id: synthetic.point())
    monkeypatch.setattr(answer, "headline", lambda look: None)
    answer.follow("20261120-104200-bench-abc123", answer.ALL, "implementations", begun)
    bodies[0](synthetic.run("20261120-104200-bench-abc123"))
    assert len(asked) == drawn
