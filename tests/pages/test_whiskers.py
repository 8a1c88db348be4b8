"""Whiskers that end beyond the axis say so: as a line from edge to edge they looked like a rule."""

from dataclasses import replace

import pytest
import synthetic as s

from fusescope.charts.bench import speedup


@pytest.mark.parametrize(
    "low, high, arrows",
    [
        (0.1, 12.0, ("triangle-left", "triangle-right")),
        (0.9, 12.0, ("triangle-right",)),
        (0.1, 1.2, ("triangle-left",)),
        (0.9, 1.2, ()),
        (1e-4, 10.0, ()),  # no interval is known, and none is drawn
    ],
)
def test_an_interval_beyond_the_axis_ends_in_an_arrowhead(low, high, arrows):
    base = s.ok("eager", 1.0, 1.0, s.case())
    mine = s.ok("v1", 0.95, 0.95, s.case())
    mine = replace(mine, speedup=replace(mine.speedup, median=1.05, low=low, high=high))
    fig = speedup.bars([base, mine], "eager")
    drawn = [t for t in fig.data if t.type == "scatter" and t.marker.symbol]
    assert [tuple(t.marker.symbol) for t in drawn] == ([arrows] if arrows else [])
    first, last = (10**end for end in fig.layout.xaxis.range)
    places = {"triangle-left": first, "triangle-right": last}
    assert all(list(t.x) == [places[a] for a in arrows] and set(t.y) == {"v1"} for t in drawn)
