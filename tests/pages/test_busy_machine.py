"""A busy machine is said: over a result, and before Run is pressed; the last self-check stands on Home."""

import dataclasses
import gzip
import json
import os

import folders
import pytest
import streamlit as st
import synthetic
from drawn_page import calm, query, said, widget

from fusescope.charts.bench import speedup
from fusescope.core.machine import load
from fusescope.core.machine.conditions import Conditions
from fusescope.jobs import submit

BUSY = "other processes use 1.4 of 2 CPUs"


NEXT = "20261120-160000-bench-ffffff"


@pytest.fixture
def submitted(monkeypatch, profiles):
    """What is submitted; each submission leaves the folder of the run NEXT."""
    found = []

    def stand_in(kind, spec, title=""):
        found.append((kind, spec))
        run = synthetic.run(NEXT, kind=kind, spec=spec, title="the same again")
        folders.write(profiles, run, synthetic.point(), samples=False)
        return NEXT

    monkeypatch.setattr(submit, "submit", stand_in)
    return found


@pytest.mark.parametrize("page", ["runs", "kernels"])
def test_a_result_of_a_busy_machine_says_so_and_offers_to_wait(draw, profiles, submitted, page):
    now = Conditions(other_cpus=1.4, busy=BUSY, busy_rounds=0.75)
    records = [dataclasses.replace(r, conditions=now) for r in synthetic.point()]
    run = synthetic.run()
    folders.write(profiles, run, records)
    at = draw(page, run=run.id, over="sdpa")
    assert f"The machine was busy while this was measured: {BUSY}, in up to 75 %" in said(at.warning)
    (again,) = [b for b in at.button if b.label.startswith("Wait for an idle machine")]
    calm(again.click().run())
    ((kind, spec),) = submitted
    assert kind == "bench" and spec["wait_idle_s"] == 300 and spec["op"] == run.spec["op"]
    assert query(at)["run"] == NEXT and "the same again" in said(at.main.markdown), "its run is on show"
    assert "The machine was busy" not in said(at.warning)
    assert [t.value for t in at.toast] == ["**the same again** takes no samples before the machine is idle."]
    calm(at.run())
    assert query(at)["run"] == NEXT


def test_an_imported_run_is_measured_again_once_its_files_are_confirmed(draw, profiles, submitted):
    now = Conditions(other_cpus=1.4, busy=BUSY, busy_rounds=0.75)
    records = [dataclasses.replace(r, conditions=now) for r in synthetic.point()]
    spec = synthetic.run().spec | {"impls": ["eager", "/elsewhere/mine.py:fn"]}
    run = synthetic.run(spec=spec, imported=True)
    folders.write(profiles, run, records)
    labels = [b.label for b in draw("runs", run=run.id).button]
    assert "Wait for an idle machine and measure again" not in labels
    assert "I know these files: wait for an idle machine and measure again" in labels


def test_a_quiet_result_says_nothing(draw, profiles):
    run = synthetic.run()
    folders.write(profiles, run, synthetic.point())
    assert "busy" not in said(draw("runs", run=run.id).warning)


IDLE = {"other_cpus": 0.0, "steal": 0.0, "waited": 0.0, "quota": 0.0}


def slot(at) -> str:
    """The line of one height that says how busy the CPUs are."""
    (line,) = [
        h.proto.body for h in at.get("html") if "fs-slot" in h.proto.body and "<style>" not in h.proto.body
    ]
    return line


def test_busy_cpus_are_said_before_run_is_pressed(draw, profiles, monkeypatch):
    monkeypatch.setattr(load.Load, "read", lambda self: IDLE | {"other_cpus": 1.4, "steal": 0.1})
    at = draw("kernels", op="add")
    plain = "Other processes use 1.4 of 2 CPUs: times would be noisy. Tick the box to wait."
    assert plain.replace(" 2 ", f" {len(os.sched_getaffinity(0))} ") in slot(at)
    assert "the hypervisor takes 10 %" in slot(at), "all of it on hover"
    (box,) = [c for c in at.checkbox if "for an idle machine" in c.label]
    assert at.session_state["busy/wait"] is False and calm(box.check().run()).session_state["busy/wait"]
    assert "times would be noisy. Run will wait." in slot(at)


@pytest.mark.parametrize("query", [{"op": "add"}, {"do": "own", "op": "softmax"}])
def test_what_is_said_of_the_cpus_comes_and_goes_in_place(draw, monkeypatch, tmp_path, query):
    """It stood in a box that moved the form under the visitor's hand."""
    (tmp_path / "mine.py").write_text("def soft(x):\n    return x.softmax(-1)\n")
    figures = [IDLE]
    monkeypatch.setattr(load.Load, "read", lambda self: figures[0])
    monkeypatch.setattr(submit, "queue", list)
    at = draw("kernels", **query)
    if "do" in query:
        calm(widget(at.text_input, "your Python file").set_value(f"{tmp_path / 'mine.py'}:soft").run())
    kinds = [e.type for e in at.main]
    assert "The CPUs are idle now." in slot(at)
    for figures[0] in (IDLE | {"other_cpus": 1.4}, None):
        calm(at.run())
        assert [e.type for e in at.main] == kinds and slot(at)
    monkeypatch.setattr(submit, "queue", lambda: [{"id": "gone", "place": 0, "device": "cpu"}])
    calm(at.run())
    assert [e.type for e in at.main] == kinds and "A job is running" in slot(at)


def test_home_shows_the_last_self_check_and_runs_its_table(draw, profiles):
    st.cache_data.clear()
    run = synthetic.run("20261120-104200-selfcheck-abc123", kind="selfcheck", spec={"device": "cpu"})
    row = {"part": "A/A", "check": "equal implementations", "figure": "3 of 10", "limit": "at most 1"}
    rows = [row | {"passed": False, "note": ""}, row | {"passed": None, "figure": "n/a", "note": "no GPU"}]
    report = {"schema": 1, "rows": rows, "passed": 0, "failed": 1, "open": 1, "device": "cpu"}
    path = folders.write(profiles, run, [])
    with gzip.open(path / "artifacts" / "selfcheck.json.gz", "wt") as file:
        json.dump(report, file)
    (link,) = [e for e in draw("app").get("page_link") if "Self-check" in e.proto.label]
    assert "0 passed, 1 failed, 1 open" in link.proto.label
    at = draw("runs", run=run.id)
    assert "0 passed, 1 failed, 1 open" in said(at.markdown)


def test_an_unstable_result_shows_no_error_that_it_had_when_it_was_checked():
    wrong = synthetic.wrong("v3_broken", synthetic.case())
    unstable = dataclasses.replace(wrong, reason="unstable: it was right when checked, and a timed call …")
    shown = speedup.bars([synthetic.ok("eager", 0.05, 0.05, synthetic.case()), unstable], "eager").to_json()
    assert "wrong in a timed call" in shown and "error 0.31" not in shown
