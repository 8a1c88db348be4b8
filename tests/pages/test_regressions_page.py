"""Regressions: the largest slow-down first, then what is undecided with its reason, the rest folded; a change
that nobody can see is none."""

import dataclasses
import subprocess

import folders
import pytest
import synthetic as s
from drawn_page import figures, said

from fusescope.analysis.compare import regressions
from fusescope.charts.bench import history
from fusescope.core import paths
from fusescope.core.machine import commits
from pages._ui.widgets import reading

NOW = {"v1_x": 1.5, "v2_x": 1.2, "v3_x": 1.0, "v4_x": 0.5, "v5_x": 1.1, "v6_x": 1.3}
WIDE = ("v5_x", "v6_x")


def record(impl, ms, number, converged=True):
    found = s.ok(impl, ms, ms, s.case(), source_hash=f"{number:016x}")
    spread = 0.4 if impl in WIDE else 0.001
    time = dataclasses.replace(
        found.time_ms.graph, low=ms * (1 - spread), high=ms * (1 + spread), converged=converged
    )
    return dataclasses.replace(found, time_ms=dataclasses.replace(found.time_ms, graph=time))


def run(number, commit="c0ffee00"):
    found = s.run(f"2026112{number}-120000-bench-00000{number}", finished=1.79e9 + 1000 * number)
    return dataclasses.replace(found, environment={**found.environment, "git_commit": commit})


def edits(*times, impl="v1_x"):
    return [history.Edit(run(n), record(impl, ms, n)) for n, ms in enumerate(times)]


@pytest.fixture
def two(profiles):
    folders.write(profiles, run(1), [record(impl, 1.0, 1) for impl in NOW], samples=False)
    folders.write(profiles, run(2), [record(impl, ms, 2) for impl, ms in NOW.items()], samples=False)


def label(fig):
    return next(a.text for a in fig.layout.annotations if "first" in a.text or "best" in a.text)


@pytest.mark.parametrize(
    "times, words",
    [
        ((1.0, 1.003), "<b>same within 5 %</b><br>as the first"),
        ((1.0, 0.5), "<b>2.00× faster</b><br>than the first"),
        ((1.0, 1.3), "<b>▼ 1.30× slower</b><br>than the best"),
    ],
)
def test_the_last_time_against_the_first(times, words):
    assert label(history.steps(edits(*times), "v1_x")) == words


def test_what_is_undecided_is_not_bold():
    assert label(history.steps(edits(1.0, 1.1, impl="v5_x"), "v5_x")) == (
        "1.10× slower<br>than the first<br>(undecided)"
    )
    same = label(history.steps(edits(1.0, 1.001, impl="v5_x"), "v5_x"))
    assert same == "about as fast<br>as the first<br>(undecided)"


def test_the_largest_slow_down_is_first_and_the_rest_is_folded(draw, two):
    at = draw("runs", view="Regressions")
    shown = at.selectbox(key="runs/series").options
    assert [one.partition(" ")[0] for one in shown] == ["v1_x", "v2_x", "v6_x", "v5_x", "v3_x", "v4_x"]
    tables = said(at.get("html"))
    assert tables.index("v1_x") < tables.index("v2_x") < tables.index("v6_x") < tables.index("v5_x")
    assert "1.30× slower [" in tables and "the interval is too wide" in tables
    assert "Undecided: 2" in said(at.markdown) and at.expander[0].label == "Not slower: 2"
    assert "v1_x, edit by edit" in figures(at)


def test_the_reading_explains_edits_of_the_same_machine_code():
    assert "same instructions" in reading.of(history.steps(edits(1.0, 1.1), "v1_x"))


def test_commits_of_this_checkout_have_their_subject():
    if not (paths.ROOT / ".git").exists():
        pytest.skip("no checkout")
    command = ["git", "-C", str(paths.ROOT), "log", "-1", "--format=%H %s"]
    head, _, subject = subprocess.run(command, capture_output=True, text=True).stdout.strip().partition(" ")
    found = commits.subjects([head, head[:8], "f" * 40, "--all", None])
    assert found == {head: subject, head[:8]: subject}
    old, new = run(1, head), run(2, "f" * 40)
    rows = [history.Edit(old, record("v1_x", 1.0, 1)), history.Edit(new, record("v1_x", 1.0, 2))]
    texts = history.steps(rows, "v1_x", subjects=found).data[0].hovertext
    assert subject[:20] in texts[0].replace("&#x27;", "'") and "ffffffff" not in texts[1]
    one = regressions.Series(
        "attention", "v1_x", "{}", "float16", "H200", "graph", tuple(e.point for e in rows)
    )
    cells = history.commits([one], found)
    assert list(cells["best at"].values()) == [subject] and cells["now at"] == {}
