"""The report of thousands of schemes: few traces, nothing cut in silence."""

import re

import fusion_folders
import plotly.graph_objects as go
import pytest

from fusescope.charts import report
from fusescope.charts.fusion import report as fusion_report
from fusescope.core import command
from fusescope.core.records import Record

CODES = fusion_folders.times(620)


@pytest.fixture(scope="module")
def records():
    good = [fusion_folders.record(code, ms) for code, ms in CODES.items()]
    case = fusion_folders.SETTING.case()
    bad = [
        Record("layer", f"{i:016b}", case, "float32", "cpu", "error", reason=f"<b>why</b> {i % 2}")
        for i in range(5)
    ]
    alone = Record(
        "layer_segment",
        "torch",
        case | {"first": 3, "last": 3},
        "float32",
        "cpu",
        "ok",
        time_ms=good[0].time_ms,
    )
    beside = [fusion_folders.record("unfused", 2.0), fusion_folders.record("hand_fused", 0.9)]
    return [*beside, alone, *good[:300], *bad, *good[300:]]


def test_all_are_drawn_and_the_fastest_listed(records):
    found = dict(fusion_report.sections("traverse", records, "here"))
    assert found["Schemes"] == "620 distinct schemes checked and timed, 5 failed; the charts show all."
    charts = [c for c in found.values() if isinstance(c, go.Figure)]
    assert len(charts) == 2 and all(len(c.data) < 12 for c in charts), "no trace a record"
    drawn = sum(len(t.x) for t in charts[0].data if t.customdata is not None)
    assert drawn == len(CODES)
    listed = found["Schemes by name: the 200 fastest of 620, and the baselines"]
    assert list(listed["scheme"][:200]) == sorted(CODES, key=CODES.get)[:200] and set(
        listed["scheme"][200:]
    ) == {"unfused", "hand_fused"}
    assert list(found["Failures"]["schemes"]) == [3, 2]
    assert found["Segments measured alone (1)"]["operators"][0] == "3"
    line = fusion_report.track([r for r in records if set(r.impl) <= {"0", "1"}])
    assert line[-1][2] == min(CODES.values()) and [n for n, ms, _ in line if ms != ms] == [
        301,
        302,
        303,
        304,
        305,
    ]


def test_the_report_escapes_and_says_how_to_repeat(records):
    run = fusion_folders.run("traverse", 1)
    page = report.page(run, records, (), command.layer("traverse", run.spec))
    assert "<b>why</b>" not in page and "&lt;b&gt;why" in page and "the 200 fastest of 620" in page
    assert "fusescope traverse --limit 80 --batch 1 --seq 16" in page
    assert len(re.findall("plotly-graph-div", page)) == 2
    nothing = [r for r in records if r.status != "ok"]
    assert "None of 5 schemes has a time." in report.page(run, nothing)


def test_the_command_is_the_job():
    """What the command line makes of the command is the spec again."""
    import argparse

    from fusescope.cli.verbs import search, traverse
    from fusescope.jobs import submit

    layer = {"batch": 2, "seq": 64, "mask": "causal", "device": "cpu", "dtype": "float32", "compiler": "none"}
    for kind, verb, more in (
        (
            "traverse",
            traverse,
            {
                "ranges": [[32768, 33000], [16384, 16400]],
                "limit": 7,
                "segments": False,
                "seed": 3,
                "part": [2, 6],
            },
        ),
        (
            "search",
            search,
            {"strategy": "additive", "evaluations": 12, "ranges": [[32768, 33000]], "seed": 1},
        ),
    ):
        spec = submit.validate(kind, layer | more)
        words = command.layer(kind, spec).split()[2:]
        parser = argparse.ArgumentParser()
        verb.arguments(parser, words)
        assert submit.validate(kind, verb.specify(parser.parse_args(words))) == spec


def test_a_search_has_its_finalists(records):
    final = [
        Record("layer_final", r.impl, r.case, r.dtype, r.device, "ok", time_ms=r.time_ms, speedup=r.speedup)
        for r in records[:2]
    ]
    found = dict(fusion_report.sections("search", [*records, *final]))
    assert set(found["The best schemes, re-measured with the baselines"]["scheme"]) == {
        "unfused",
        "hand_fused",
    }
    assert "Best so far, in search order" in found
