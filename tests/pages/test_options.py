"""What an option costs is said where a run has cases with it and without."""

from dataclasses import replace

import folders
import pytest
import synthetic as s
from drawn_page import said

from fusescope.analysis.compare.options import costs
from fusescope.charts.findings import options
from fusescope.store import folder, library


def timed(impl: str, ms: float, **case):
    return s.ok(impl, ms, 1.0, s.case() | case)


SCORED = [
    timed("v4_scheduled", 1.0),
    timed("flex", 1.5),
    timed("v4_scheduled", 1.2, score="score + slope[h] * (k - q)"),
    timed("flex", 1.6, score="score + slope[h] * (k - q)"),
    timed("v4_scheduled", 1.65, score="20 * tanh(score / 20)"),
]


def test_the_cost_is_the_time_with_over_the_time_without():
    found = costs(SCORED)
    assert [(c.impl, c.value[:2], round(c.ratio, 3)) for c in found] == [
        ("v4_scheduled", "sc", 1.2),
        ("flex", "sc", 1.067),
        ("v4_scheduled", "20", 1.65),
    ]
    assert options.sentence(found) == (
        "With v4_scheduled, score “score + slope[h] * (k - q)” takes 1.20× the time of score=none, "
        "score “20 * tanh(score / 20)” 1.65×: ratios of medians."
    )
    assert list(options.table(found)["with / without"]) == [c.ratio for c in found]
    assert list(options.table(found)["without (ms)"]) == [1.0, 1.5, 1.0]


@pytest.mark.parametrize(
    "records",
    [
        SCORED[:2],
        [timed("v4_scheduled", 1.0, seq=256), timed("v4_scheduled", 1.2, seq=512, score="x")],
        [timed("v4_scheduled", 1.0, mask="full"), timed("v4_scheduled", 1.2, mask="causal")],
        [SCORED[0], replace(SCORED[2], dtype="bfloat16")],
        [s.failed("v4_scheduled", s.case()), SCORED[2]],
        [],
    ],
    ids=["one case", "two keys", "no option", "another dtype", "no time without", "empty"],
)
def test_without_such_a_pair_nothing_is_said(records):
    assert costs(records) == [] and options.sentence(costs(records)) == ""


def test_ratios_of_several_cases_name_them_and_of_many_the_mean():
    two = [timed("v1", ms, mask=mask, kv_dtype=kv) for mask, of in _MASKS.items() for kv, ms in of.items()]
    said_of_two = options.sentence(costs(two))
    assert (
        "kv_dtype=fp8 takes 0.500× the time of kv_dtype=q (mask=causal) and 0.250× (mask=full)" in said_of_two
    )
    many = [timed("v1", ms, seq=seq, residual=r) for seq in range(1, 7) for r, ms in _ADDED.items()]
    assert (
        "residual=yes takes 1.10× the time of residual=no in the geometric mean of 6 cases"
        in options.sentence(costs(many))
    )


_MASKS = {"causal": {"q": 1.0, "fp8": 0.5}, "full": {"q": 2.0, "fp8": 0.5}}
_ADDED = {"no": 1.0, "yes": 1.1}


def test_the_page_says_it_under_the_headline_and_offers_all(draw, profiles):
    run = s.run()
    folders.write(profiles / "recorded", run, SCORED, samples=False)
    at = draw("runs", run=run.id)
    assert "takes 1.20× the time of" in said(at.caption) and "not sampled in turn" in said(at.caption)
    one = draw("runs", run=run.id, case="score=none")
    assert "the time of" not in said(one.caption)


def test_the_recorded_score_expressions(recorded):
    found = library.find("20261127-170244-bench-68eeab")
    text = options.sentence(costs(folder.records(found)))
    assert text.startswith(
        "With v4_scheduled, score “score + slope[h] * (k - q)” takes 1.18× the time of score=none"
    )
