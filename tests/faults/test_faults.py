"""A part of ``make test-faults`` in each run of ``make test-archs``: some cases of every class of faults."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.faults import document, runner
from tests.faults.case import Fault

SECONDS = float(os.environ.get("FUSESCOPE_FAULTS_S", 1.5))
"""Of each class, beyond what it takes to prepare it."""
NOT_IN_SECONDS = {"soak"}
"""Levels mean nothing after some seconds; tests/guard/test_sessions.py holds them in every run of tests."""


def classes() -> list:
    """The names of the classes; those of a GPU carry its marker."""
    tried = [name for name in runner.names() if name not in NOT_IN_SECONDS]
    needs_gpu = {name: getattr(runner.load(name), "NEEDS_GPU", False) for name in tried}
    return [pytest.param(name, marks=[pytest.mark.gpu] * gpu) for name, gpu in needs_gpu.items()]


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", classes())
def test_nothing_is_lost_and_nobody_let_in(name, tmp_path):
    whole = getattr(runner.load(name), "NEEDS_GPU", False)  # such a machine is seldom at hand
    (result,) = runner.run([name], 0, 300.0 if whole else SECONDS, 1, least=whole, divided=whole)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.cases and not result.found, "\n".join(
        f"--only {name}:{s} {b}: {t}" for b, s, t in result.found
    )


def test_the_document_says_what_is():
    assert document.problems() == []


def test_a_class_that_finds_a_fault_or_dies_is_told(tmp_path, monkeypatch):
    """The suite is no check that cannot fail."""

    @contextmanager
    def prepared(at):
        def try_one(seed):
            if seed == 1:
                raise Fault("lost", "a record")
            if seed == 2:
                raise KeyError("raw")
            return 3

        yield try_one

    monkeypatch.setattr(runner, "load", lambda name: SimpleNamespace(TITLE="t", LEAST=99, prepared=prepared))
    result = runner.enough(runner.attempt("x", 0, 60.0, tmp_path, 4))
    assert (result.cases, result.count("lost"), result.count("raw"), result.short) == (
        8,
        1,
        1,
        True,
    ) and not result.good
    assert "| t | 8 (of 99) | 1 | 0 | 1 |" in runner.table([result])


def test_parts_of_a_class_have_seeds_and_time_of_their_own(monkeypatch):
    def load(name):
        return SimpleNamespace(TITLE=name, LEAST=7, SHARE=4.0, PARTS=2 if name == "long" else 1)

    def process(name, seed, budget_s, most, cases):
        called.append((name, seed, cases))
        assert 0 < budget_s <= 60.0
        return runner.Result(name, name, cases=2, seconds=1.0, found=[("raw", seed, "x")])

    called = []
    monkeypatch.setattr(runner, "load", load)
    monkeypatch.setattr(runner, "_process", process)
    whole = {r.name: r for r in runner.run(["long", "short"], 5, 60.0, 2, least=True)}
    assert sorted(called) == [("long", 5, 4), ("long", 100_005, 4), ("short", 5, 7)]
    assert (whole["long"].cases, whole["long"].seconds, len(whole["long"].found)) == (4, 2.0, 2)
    assert whole["short"].cases == 2
    called.clear()
    assert [r.cases for r in runner.run(["long"], 5, 60.0, 2, least=True, divided=False)] == [2]
    assert called == [("long", 5, 7)]


def test_the_longest_begins_first():
    order = runner._Time(runner.names(), 60.0, 2).order
    assert order[0] == "soak" and order[-1] == "kills"


def test_the_figures_are_those_of_an_output(tmp_path, monkeypatch):
    output, target = tmp_path / "output", tmp_path / "reliability.md"
    output.write_text(
        "seeds from 5 on, 60 s, 2 at a time\na    1,070 cases\n\n"
        "| class | cases | lost | wrong status | other faults | seconds |\n|---|---:|---:|---:|---:|---:|\n"
        "| A | 1,070 (of 3,000) | 2 | 0 | 1 | 3 |\n| B | skipped: no GPU | | | | |\n"
    )
    target.write_text(document.FILE.read_text())
    monkeypatch.setattr(document, "FILE", target)
    document.write(output)
    said = target.read_text()
    assert "1,070 cases; 2 finished records lost, 0 wrong states, 1 other faults" in said
    assert "| A | 1,070 (of 3,000) | 2 | 0 | 1 | 3 |" in said and "## What holds" in said
    assert any("no figures of" in problem for problem in document.problems())

    other = tmp_path / "other"
    other.write_text(
        "| class | cases |\n|---|---:|\n| A | 9 | 9 | 9 | 9 | 9 |\n| B | 8 | 0 | 0 | 0 | 120 |\n"
    )
    document.write(output, other)
    said = target.read_text()
    assert "1,070 cases; 2 finished" in said and "| A | 1,070 (of 3,000) | 2 | 0 | 1 | 3 |" in said
    assert "| B | 8 | 0 | 0 | 0 | 120 |" in said and "skipped: no GPU" not in said
    assert re.search(r"On another machine, \d{4}-\d\d-\d\d: B\.", said) and " A." not in said
