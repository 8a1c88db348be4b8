"""What a run of several cases found: the overview of cells, the report that begins with it, one sentence."""

import dataclasses
import json

import synthetic as s
from drawn_page import words

from fusescope.charts import captions, numbers, report
from fusescope.charts.bench import overview
from fusescope.charts.findings import brief
from fusescope.core.records import Speedup

SUBTITLE = captions.context(s.run())


def test_an_overview_has_a_written_cell_for_each_case_and_implementation():
    records = s.two_masks()
    fig = overview.cells(records, "eager", SUBTITLE)
    cells, text = fig.data[0], [tuple(row) for row in fig.data[0].text]
    at = {
        impl.strip().removeprefix("<b>").removesuffix("</b>"): n
        for n, impl in enumerate(fig.layout.yaxis.ticktext)
    }
    assert list(fig.layout.xaxis.ticktext) == ["bigbird", "causal"] and "by mask" in fig.layout.title.text
    assert text[at["v2_blockwise"]] == ("▲2.60", "▲2.60") and text[at["v1_rowwise"]][0] == "▼1.25"
    assert text[at["eager"]] == ("1", "1") and text[at["flex"]] == ("▲1.40", "–")
    assert text[at["v3_broken"]] == ("✗", "✗") and text[at["sdpa_math"]][0] == "oom"
    assert "head_dim 72 is not taken" in cells.customdata[at["v4_hopper"]][0]


def test_an_overview_of_many_cases_puts_them_in_rows():
    records = [
        dataclasses.replace(r, case={**s.case(), "mask": f"m{n}"}) for n in range(12) for r in s.point()
    ]
    fig = overview.cells(records, "eager")
    assert fig.layout.yaxis.ticktext[-1].strip() == "m0" and len(fig.layout.xaxis.ticktext) == 8
    assert "No record" in words(overview.cells([], "eager"))


def test_columns_of_tall_rows_are_named_at_the_top():
    """Six cases whose names have three lines each named their columns 800 pixels below the title."""
    cases = [{**s.case(512 * n), "batch": n, "heads": n, "mask": f"m{n}"} for n in range(1, 7)]
    records = [dataclasses.replace(r, case=case) for case in cases for r in s.point()[:4]]
    fig = overview.cells(records, "eager")
    assert fig.layout.yaxis.ticktext[0].count("<br>") == 2 and fig.layout.xaxis.side == "top"
    flat = overview.cells(s.two_masks(), "eager")
    assert flat.layout.xaxis.side is None, "all of a few rows is in sight"


def test_a_row_of_many_cases_is_one_line():
    """Values without their names, the mask as people write it, sign and figure side by side."""
    cases = [
        {**s.case(seq), "mask": m}
        for seq in range(512, 5120, 512)
        for m in ("full", "sliding_window:right=0")
    ]
    records = [dataclasses.replace(r, case=case) for case in cases for r in s.point()]
    fig = overview.cells(records, "eager")
    assert "512, sliding window, right=0" in [name.strip() for name in fig.layout.yaxis.ticktext]
    assert "<br>" not in json.dumps([list(fig.layout.yaxis.ticktext), *map(list, fig.data[0].text)])
    assert fig.layout.height < 32 * len(cases) + 300


def test_what_cannot_be_told_from_the_baseline_carries_no_colour():
    same = s.ok("sdpa", 0.0501, 0.05, s.case())
    fig = overview.cells([s.ok("eager", 0.05, 0.05, s.case()), same], "eager")
    assert {v for row in fig.data[0].z for v in row} == {0.0} and '"?"' in words(fig)
    close = dataclasses.replace(same, speedup=Speedup("graph", 1.002, 0.998, 1.006))
    assert "≈1.00" in words(overview.cells([s.ok("eager", 0.05, 0.05, s.case()), close], "eager"))


def test_the_report_of_several_cases_begins_with_their_overview():
    text = report.page(s.run(), s.two_masks())
    assert text.index("<h2>Overview</h2>") < text.index("<h2>Speed-up at mask=bigbird</h2>")


def test_what_a_run_found_in_a_few_words():
    records = s.point()
    fastest = min((r for r in records if r.speedup), key=lambda r: r.ms)
    assert brief.in_short(records, "eager").startswith(
        f"{fastest.impl} {numbers.ratio(fastest.speedup.median)} eager"
    )
    assert ("wrong" in brief.in_short(records, "eager")) == any(r.status == "wrong" for r in records)
    assert "fastest in 4 of 4" in brief.in_short(s.sweep(), "eager")
    alone = [s.ok("eager", 0.05, 0.05, s.case())]
    assert brief.in_short(alone, "eager") == "none proven faster than eager"
    assert brief.in_short([s.failed("v1", s.case())], "eager") == ""
