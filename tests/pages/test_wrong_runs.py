"""Home, Runs and the sidebar over runs with values of every wrong type: each costs its own row alone."""

import json
import sys
from pathlib import Path

import folders
import pytest
import synthetic
from drawn_page import said

from fusescope.store import library

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))
import make_runs
import wrong_types

pytestmark = pytest.mark.slow


@pytest.fixture
def wrong(profiles):
    return wrong_types.write(profiles)


@pytest.mark.long
def test_home_and_runs_are_drawn(wrong, draw):
    home = draw("app")
    assert not home.error
    last = -(-library.runs(limit=1)[1] // 25)
    for page in (1, 2, last // 2, last):
        at = draw("runs", page=str(page))
        assert not at.error, said(at.error)
    assert f"{min(25, len(library.broken()))}" and "unreadable" in said(at.markdown)


def test_results_of_a_wrong_type_cost_their_cell_and_unreadable_runs_are_counted(profiles, draw):
    path = profiles / "20260101-000000-bench-bbbbbb"
    path.mkdir()
    run = {k: v for k, v in wrong_types.RUN.items() if k != "contents"}
    (path / "run.json").write_text(json.dumps(run | {"id": path.name}))
    (path / "results.jsonl").write_text(json.dumps(make_runs.record("add", 1, "eager") | {"op": None}) + "\n")
    for n in range(30):
        (profiles / f"20260101-{n:06d}-bench-aaaaaa").mkdir()
    at = draw("runs")
    assert not at.exception
    assert "more runs are unreadable" in said(at.caption), said(at.caption)
    (row,) = at.dataframe[0].value.to_dict("records")
    assert row["result"].startswith("unreadable"), row


def test_an_unreadable_run_is_a_row_with_its_reason_folder_and_a_way_to_delete_it(profiles, draw):
    (profiles / "20260101-000000-bench-aaaaaa").mkdir()
    at = draw("runs")
    assert "has no run.json" in said(at.markdown)
    assert str(profiles / "20260101-000000-bench-aaaaaa") in [c.value for c in at.code]
    at.button(key="runs/delete/20260101-000000-bench-aaaaaa").click().run()
    assert not at.exception and not (profiles / "20260101-000000-bench-aaaaaa").exists()
    assert "unreadable" not in said(at.markdown)


def test_a_run_that_was_cancelled_says_so_in_the_list_and_once(draw, profiles):
    """The list's column of states was out of sight; the page said "cancelled · cancelled by user"."""
    run = synthetic.run(status="cancelled", reason="cancelled by user")
    folders.write(profiles, run, [])
    (said_so,) = draw("runs").dataframe[0].value["result"]
    assert said_so.endswith("cancelled")
    assert "by user" not in said(draw("runs", run=run.id).warning)
