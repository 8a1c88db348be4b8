"""The Models page's view Accuracy: what it submits, the report of a run, its charts."""

import gzip
import json

import folders
import pytest
import synthetic
from drawn_page import figures, query, said

from fusescope import models
from fusescope.charts.models import depth, ulps
from pages._ui.models import accuracy as models_accuracy


def row(name, error, level="kernel", own=None, accepted=True):
    figures = {
        "count": 64,
        "unequal": 0,
        "max_abs": error,
        "mean_abs": error / 3,
        "max_rel": error,
        "mean_rel": error / 2,
        "relative_l2": error,
        "cosine": 1.0,
        "rms": 1.0,
        "ulps": [0, 60, 4, *[0] * 9],
    }
    own = figures | {"relative_l2": own} if own else None
    return {
        "name": name,
        "kind": "Linear",
        "level": level,
        "shape": [1],
        "roundings": 4,
        "own": own,
        "limit": 1e-2,
        "accepted": accepted,
    } | figures


def judged(profiles, run_id="20261120-120000-accuracy-0000aa", bad=False, status="done"):
    names = [
        "embeddings",
        "encoder.layer.0.attention.self",
        "encoder.layer.1.attention.self",
        "encoder.layer.1.attention.self:scores",
    ]
    rows = [row(n, 1e-3 * (i + 1), own=2e-4) for i, n in enumerate(names)] + [row("output", 5e-3, "model")]
    if bad:
        rows[2] |= {"accepted": False, "relative_l2": 0.3}
        rows[-1] |= {"accepted": False, "relative_l2": 0.4}
    entries = [
        {
            "way": "eager",
            "dtype": "float16",
            "reason": None,
            "backend": None,
            "rows": [row(r["name"], 2e-3) for r in rows],
            "because": "so",
        },
        {"way": "fused", "dtype": "float16", "reason": None, "backend": None, "rows": rows, "because": "so"},
        {
            "way": "flex",
            "dtype": "float16",
            "reason": "no compiler",
            "backend": None,
            "rows": [],
            "because": "so",
        },
    ]
    case = models.validate("bert-base", {"seq": 64})
    spec = {
        "model": "bert-base",
        "case": case,
        "entries": [[e["way"], "float16"] for e in entries],
        "device": "cpu",
    }
    path = folders.write(
        profiles, synthetic.run(run_id, kind="accuracy", spec=spec, status=status), [], samples=False
    )
    report = {"schema": 1, "model": "bert-base", "case": case, "entries": entries}
    (path / "artifacts" / "accuracy.json.gz").write_bytes(gzip.compress(json.dumps(report).encode()))
    return run_id


def test_judging_submits_every_way_and_dtype(draw, monkeypatch):
    sent = []
    monkeypatch.setattr(
        "fusescope.jobs.submit.submit", lambda kind, spec, title="": sent.append((kind, spec)) or "x"
    )
    at = draw("models", view="Accuracy", impl="eager,sdpa", judge="float32,float16", seq="16")
    at.button(key="models/judge_run").click()
    at.run()
    kind, spec = sent[0]
    assert kind == "accuracy" and spec["entries"] == [
        ["eager", "float32"],
        ["sdpa", "float32"],
        ["eager", "float16"],
        ["sdpa", "float16"],
    ]
    from fusescope.jobs.kinds import accuracy

    accuracy.validate(spec)


@pytest.mark.slow
def test_a_report_names_the_first_divergence(draw, profiles):
    judged(profiles)
    judged(profiles, "20261120-110000-accuracy-0000bb", bad=True)
    at = draw("models", view="Accuracy")
    html = "".join(e.proto.body for e in at.get("html"))
    assert (
        "within tolerance" in html
        and "no compiler" in html
        and "Error by depth" in figures(at)
        and "last place" in figures(at)
    )
    assert "diverge nowhere" in said(at.markdown)
    at = draw(
        "models", view="Accuracy", report="20261120-110000-accuracy-0000bb", own="yes", place="embeddings"
    )
    html = "".join(e.proto.body for e in at.get("html"))
    assert "above tolerance" in html and "encoder.layer.1.attention.self" in html and not at.error
    assert "diverge from encoder.layer.1.attention.self on" in said(at.markdown)
    at = draw("models", view="Accuracy", compare="20261120-110000-accuracy-0000bb")
    assert "(other)" in figures(at) and query(at)["compare"].endswith("0000bb")


def test_charts_of_depth_and_ulps_say_what_they_draw(profiles):
    entries = [
        {"way": "eager", "dtype": "float16", "rows": [row("a", 0.0), row("b", 1e-3)]},
        {
            "way": "fused",
            "dtype": "float16",
            "rows": [row("a", 1e-3), row("x", 2e-3), row("b", 0.5, accepted=False)],
        },
    ]
    fig = depth.curves(entries)
    names = [t.name for t in fig.data]
    assert "first above tolerance" in names and list(fig.data[0].x) == [0, 2], (
        "a place that one lacks is passed over"
    )
    assert min(fig.data[0].y) > 0, "an exact result has a place on a logarithmic axis"
    assert "No execution mode" in str(depth.curves([]).layout.annotations) and "No execution mode" in str(
        ulps.histogram([], "a").layout.annotations
    )
    bars = ulps.histogram([(e, e["rows"][0]) for e in entries], "a")
    assert len(bars.data) == 2 and sum(bars.data[0].y) == pytest.approx(100)
    assert list(models_accuracy.table(entries, "inside").columns) == ["place"]
