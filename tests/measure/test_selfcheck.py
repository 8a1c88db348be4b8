"""The self-check: its figures where the answer is known, its report and the verb's answer."""

import gzip
import json

import pytest

from fusescope.cli.verbs import selfcheck as verb
from fusescope.core.reporter import Collect
from fusescope.jobs.kinds import selfcheck as kind
from fusescope.measure.selfcheck import agreement, catching, pairs, run
from fusescope.measure.selfcheck.row import Row


@pytest.mark.parametrize(
    "ours, theirs, passed",
    [
        ([1.01, 0.99, 1.0], [1.0, 1.0, 1.0], True),
        ([1.05, 1.04, 1.06], [1.0, 1.0, 1.0], False),
        ([1.3, 0.8, 1.05, 0.9, 1.2], [1.0] * 5, None),
    ],
)
def test_agreement_of_two_timers(ours, theirs, passed):
    assert agreement.agreement("other", ours, theirs).passed is passed


@pytest.mark.parametrize("gib", [4, 8, 24, 80, 141])
def test_the_sum_that_timers_agree_on_fits_the_gpu(gib):
    """Two vectors and their sums of 2 GiB each ended the self-check of a small GPU, with all its rows."""
    count = agreement.elements(gib << 30)
    assert count * agreement.BYTES < 0.7 * (gib << 30)
    assert count == agreement.MOST if gib >= 80 else count < agreement.MOST


def judged(monkeypatch, verdicts, of):
    """A row over comparisons whose verdicts are given."""
    left = iter(verdicts)

    class Said:
        median = 0.99

        def __init__(self, verdict):
            self.verdict = verdict

    class Found:
        def __init__(self, verdict):
            self.speedup = Said(verdict)

    monkeypatch.setattr(pairs, "_compared", lambda *given: Found(next(left)))
    return of("cpu", len(verdicts), 0, Collect(), lambda text: None)


@pytest.mark.parametrize(
    "verdicts, passed",
    [
        (["same"] * 10, True),
        (["same"] * 9 + ["faster"], True),
        (["same"] * 8 + ["faster", "slower"], False),
        (["inconclusive"] * 10, True),
    ],
)
def test_equal_implementations(monkeypatch, verdicts, passed):
    assert judged(monkeypatch, verdicts, pairs.equal).passed is passed


@pytest.mark.parametrize(
    "verdicts, passed",
    [
        (["slower"] * 10, True),
        (["slower"] * 8 + ["inconclusive"] * 2, None),
        (["slower"] * 9 + ["faster"], False),
        (["slower"] * 9 + ["same"], False),
    ],
)
def test_a_planted_slow_down_is_never_found_the_wrong_way_round(monkeypatch, verdicts, passed):
    row = judged(monkeypatch, verdicts, lambda *given: pairs.planted(0.05, *given))
    assert row.passed is passed


@pytest.mark.parametrize("softmax_ms", [0.0, 5.0])
def test_the_whole_call_is_longer_by_the_share(monkeypatch, softmax_ms):
    import torch

    now, right = [0.0], torch.softmax
    x = torch.randn(3, 5)

    def softmax(x, dim):
        now[0] += 1e6 * softmax_ms
        return right(x, dim)

    def clock():
        now[0] += 50
        return now[0]

    took = []
    with monkeypatch.context() as m:
        m.setattr(pairs.time, "perf_counter_ns", clock)
        m.setattr(torch, "softmax", softmax)
        for share in (0.0, 0.5):
            call, before = pairs._slower(share, "cpu", *x.shape), now[0]
            assert torch.equal(call(x), right(x, -1))
            took.append((now[0] - before) / 1e6)
    assert took[0] == pytest.approx(pairs._DELAY_MS + softmax_ms, rel=0.02)
    assert took[1] / took[0] == pytest.approx(1.5, rel=0.02)


def test_a_kernel_that_passes_is_a_failed_row(monkeypatch):
    monkeypatch.setattr(catching, "names", lambda: ["add_mutates"])
    monkeypatch.setattr(catching, "caught", lambda kind, device, seed: None if seed == 1 else "wrong")
    (row,) = catching.rows("cpu", range(3), Collect(), lambda text: None)
    assert row.passed is False and row.figure == "caught on 4 of 6" and "add float32 seed 1" in row.note


def test_the_report_and_the_verbs_answer(tmp_path, monkeypatch):
    jsonschema = pytest.importorskip("jsonschema")
    from fusescope.core.paths import ROOT

    monkeypatch.setattr(pairs, "_compared", lambda *given: pytest.fail("not in this test"))
    rows = [
        Row("A/A", "equal", "0 of 1", "at most 1", True),
        Row("agreement", "x", "n/a", "2 %", None, "no GPU"),
    ]
    monkeypatch.setattr(run, "_rows", lambda spec, reporter: rows)
    reporter = Collect(tmp_path)
    run.run(kind.validate({"runs": 1, "seeds": 1}), reporter)
    with gzip.open(tmp_path / "selfcheck.json.gz", "rt") as file:
        report = json.load(file)
    assert (report["passed"], report["failed"], report["open"]) == (1, 0, 1)
    answer = {"run": "id"} | {k: v for k, v in report.items() if k != "schema"}
    schema = json.loads((ROOT / "backend/fusescope/schemas/selfcheck.json").read_text())
    jsonschema.validate(answer, schema)
    text = verb.text(report, "id")
    assert "0 of 1" in text and "no GPU" in text and "1 passed, 0 failed, 1 open" in text


@pytest.mark.parametrize("spec, says", [({"runs": 0}, "runs"), ({"loops": -1}, "loops"), ({"x": 1}, "x")])
def test_what_cannot_be_checked_is_refused(spec, says):
    with pytest.raises(ValueError, match=says):
        kind.validate(spec)
