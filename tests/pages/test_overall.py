"""Which of several runs is best, as one sentence: only what is proven, over rows that all have."""

import dataclasses
import json

import synthetic as s
from drawn_page import said as shown

from fusescope.analysis.compare import columns
from fusescope.charts.compared import overall


def said(*runs: dict[int, float]) -> str:
    """Of runs of one implementation, each {sequence length: ms}, every time known within 1 %."""
    sources = [
        columns.Source(
            s.run(f"2026112{n}-120000-bench-00000{n}"),
            tuple(s.ok("v1_x", ms, ms, s.case(seq)) for seq, ms in times.items()),
        )
        for n, times in enumerate(runs)
    ]
    return overall.sentence(columns.compare(sources))


def test_the_run_that_is_fastest_in_most_rows_is_first():
    text = said({64: 2.0, 128: 2.0, 256: 1.0}, {64: 1.0, 128: 1.0, 256: 2.0}, {64: 3.0, 128: 3.0, 256: 3.0})
    assert text == "B is proven fastest in 2 of 3 rows, A in 1."
    text = said({64: 2.0, 128: 1.0}, {64: 1.0, 128: 1.0}, {64: 3.0, 128: 1.0})
    assert text == "B is proven fastest in 1 of 2 rows; none in 1."


def test_what_beats_the_base_alone_is_not_best_of_all():
    assert said({64: 2.0}, {64: 1.0}, {64: 1.0}) == "none of A, B and C is proven fastest."


def test_only_rows_that_all_have_count():
    text = said({64: 2.0, 128: 2.0}, {64: 1.0}, {128: 1.0})
    assert text == "which is best cannot be said: A, B and C have no timed row in common."


def test_runs_that_may_not_be_compared_have_a_reason_and_no_cautions(draw, few, profiles):
    ids = [few["point"].id, few["recorded"].id, few["failed"].id]
    path = profiles / few["failed"].id / "run.json"
    data = json.loads(path.read_text())
    data["environment"]["device_name"] = "NVIDIA B200"
    path.write_text(json.dumps(data))
    at = draw("runs", compare=",".join(ids))
    (answer,) = (e.value for e in at.error)
    assert "May C be compared with A? No: the devices differ" in shown(at.error) and "Cautions" not in answer
    overall = next(m.value for m in at.markdown if m.value.startswith("**Overall: "))
    assert "of A and B, " in overall and "C may be compared with none of the others." in overall


def test_each_group_that_may_be_compared_has_its_own_best():
    runs = [s.run(f"2026112{n}-120000-bench-00000{n}") for n in range(4)]
    runs[2:] = [dataclasses.replace(r, environment=r.environment | {"device_name": "B200"}) for r in runs[2:]]
    times = (2.0, 1.0, 1.0, 3.0)
    sources = [
        columns.Source(run, (s.ok("v1_x", ms, ms, s.case()),)) for run, ms in zip(runs, times, strict=True)
    ]
    found = columns.compare(sources)
    text = overall.sentence(found, [[0, 1], [2, 3]])
    assert text == "of A and B, B is proven fastest. Of C and D, C is proven fastest."
    text = overall.sentence(found, [[0, 1], [2], [3]])
    assert text == "of A and B, B is proven fastest. C and D may be compared with none of the others."
    text = overall.sentence(found, [[n] for n in range(4)])
    assert text == "no two of A, B, C and D may be compared, so none is best."
    assert overall.sentence(found).startswith("which is best cannot be said"), "never across devices"
