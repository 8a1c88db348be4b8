"""The line of text above a bar leaves the bar alone: its box has the page's colour and would cover it."""

import pytest
import synthetic as s

from fusescope.analysis.compare import columns
from fusescope.analysis.profile.diff import Difference
from fusescope.charts import axes
from fusescope.charts.bench import speedup
from fusescope.charts.compared import pairs
from fusescope.charts.profile import changes

_HALF = 10  # pixels: half the box of a line of 13-pixel text
_ROUNDED = 0.5  # a browser draws it at whole pixels: "fused" had a white notch in its bar


def few_bars():
    return speedup.bars(s.point()[:3], "eager")


def many_bars():
    return speedup.bars([r for r in s.point() for _ in (0, 1)], "eager")


def compared_runs():
    """Bars whose names have a line of their own."""
    masks = ("sliding_window:left=128,right=128", "longformer")
    long = [s.ok("eager", 0.05, 0.05, {**s.case(), "mask": mask}) for mask in masks]
    runs = (s.run(), s.run("20261121-104200-bench-abc124"))
    found = columns.compare([columns.Source(run, tuple(long)) for run in runs])
    return pairs.bars(found, pairs.names(found))


def one_change():
    return changes.bars([Difference("gemm", "", "slower", 1e6, 2e6, 1e6, 0.5, 1, 1)], "kernel")


def many_changes():
    rows = [Difference(f"k{n}", "", "faster", 2e6, 1e6, -1e6, 2.0, 1, 1) for n in range(25)]
    return changes.bars(rows, "kernel")


@pytest.mark.parametrize("figure", [few_bars, many_bars, compared_runs, one_change, many_changes])
def test_no_label_covers_a_bar(figure):
    fig = figure()
    margin, low, high = fig.layout.margin, *sorted(fig.layout.yaxis.range)
    row = (fig.layout.height - margin.t - margin.b) / (high - low)
    thick = max(t.width if isinstance(t.width, float) else max(t.width) for t in fig.data if t.type == "bar")
    shifts = [a.yshift for a in fig.layout.annotations if a.yanchor == "middle" and a.text]
    assert shifts and min(shifts) - _HALF >= thick / 2 * row + _ROUNDED, (row, shifts)


def test_an_axis_of_about_a_decade_has_more_than_one_tick():
    assert axes.log(1.1, 4.7)["tickvals"] == [1.5, 2, 3] and axes.log(1, 50)["tickvals"] == [
        1,
        2,
        5,
        10,
        20,
        50,
    ]


def test_the_longest_execution_mode_is_named_whole():
    fig = speedup.bars(
        [s.ok("sdpa", 0.05, 1.0, s.case()), s.ok("compile-reduce-overhead", 0.04, 1.2, s.case())], "sdpa"
    )
    assert any(a.text == "compile-reduce-overhead" for a in fig.layout.annotations)
