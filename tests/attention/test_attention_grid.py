"""The grid's cells, charts and words over the recorded runs, and the script that plans sittings."""

import dataclasses
import json
import subprocess
import sys

import pytest

from fusescope import ops
from fusescope.core.paths import ROOT
from fusescope.core.records import Rate, Record, Speedup, Time, Times
from fusescope.store import folder

attention_grid = pytest.importorskip(
    "fusescope.charts.bench.attention_grid", reason="charts need plotly", exc_type=ImportError
)
attention_map = pytest.importorskip("fusescope.charts.bench.attention_map", exc_type=ImportError)
RECORDED = sorted((ROOT / "profiles" / "recorded").glob("*-bench-*"))


def record(impl, ms, mask="causal", seq=128, status="ok"):
    values = ops.load("attention").validate({"seq": seq, "mask": mask})
    if status != "ok":
        return Record("attention", impl, values, "float16", "cuda:0", status, reason="said")
    times = Times(graph=Time(ms, ms, ms, 100, True), eager=Time(2 * ms, 2 * ms, 2 * ms, 100, True))
    return Record("attention", impl, values, "float16", "cuda:0", "ok", time_ms=times, tflops=Rate(3.0, 4.0))


def test_a_cell_is_our_best_against_the_best_peer():
    records = [
        record("v1_rowwise", 4),
        record("v3_hopper", 2),
        record("sdpa", 3),
        record("flex", 6),
        record("composed", 1),
    ]
    records += [
        record("eager", 1, status="wrong"),
        record("v3_hopper", 5, seq=256),
        record("sdpa", 4, seq=256),
        record("sdpa", 1, seq=512),
    ]
    found = attention_grid.cells(records)
    assert [(c.ours, c.peer, c.ratio, c.shape) for c in found] == [
        ("v3_hopper", "sdpa", 1.5, "1×12×128×64"),
        ("v3_hopper", "sdpa", 0.8, "1×12×256×64"),
    ]
    assert attention_grid.geometric_mean(found) == pytest.approx((1.5 * 0.8) ** 0.5)
    assert attention_grid.cells(records, "eager")[0].tflops == 1.5, "the record's rate is of the graph's time"
    assert "slower in 1, at worst 1.25" in attention_grid.summary(found)
    assert "no cell is proven slower" in attention_grid.summary(found[:1])


def test_a_cell_whose_times_overlap_is_not_proven():
    def timed(impl, low, high):
        times = Times(graph=Time(1.0 if impl == "sdpa" else 1.02, low, high, 10, True))
        return dataclasses.replace(record(impl, 1.0), time_ms=times)

    (cell,) = found = attention_grid.cells([timed("v3_hopper", 0.99, 1.05), timed("sdpa", 0.97, 1.03)])
    assert cell.verdict == "inconclusive" and "1 not proven either way" in attention_grid.summary(found)
    assert "no cell is proven slower" in attention_grid.summary(found)
    assert attention_map.by_mask_and_shape(found).data[0].text == (["0.980?"],)
    assert attention_grid.worst_first(found).data[0].marker.symbol == ("circle-open",)


def test_a_cell_says_what_its_run_says_of_the_pair():
    """Few paired rounds leave a second speed open, which the intervals of two times do not know: the map had
    1.30 as proven, the comparison under it as inconclusive [0.884, 1.91]."""

    def timed(impl, ms, low, high):
        times = Times(graph=Time(ms, ms * 0.999, ms * 1.001, 20, True))
        return dataclasses.replace(
            record(impl, ms), time_ms=times, speedup=Speedup("graph", 3.0 / ms, low, high)
        )

    base = timed("sdpa", 3.0, 1.0, 1.0)
    (cell,) = attention_grid.cells([base, timed("v5_parts", 2.0, 0.9, 2.5)])
    assert (cell.ratio, cell.verdict) == (1.5, "inconclusive")
    (cell,) = attention_grid.cells([base, timed("v5_parts", 2.0, 1.45, 1.55)])
    assert cell.verdict == "faster"
    other = timed("flex", 2.5, 1.1, 1.3)  # the best peer is not the baseline: no pair was sampled
    (cell,) = attention_grid.cells([base, other, timed("v5_parts", 2.0, 0.9, 2.5)])
    assert cell.verdict == "inconclusive" and cell.compared.low < 0.8, "as open as over the baseline"
    (cell,) = attention_grid.cells([base, other, timed("v5_parts", 2.0, 1.4, 1.6)])
    assert cell.verdict == "faster" and cell.compared.low < 1.25 / (1.3 / 1.2)
    assert "1.25× [1.14, 1.37]" in attention_map.by_mask_and_shape([cell]).data[1].customdata[0][0]


def test_a_cell_that_is_proven_slower_is_framed():
    """0.858 was as white as 1.01."""
    records = [record("v3_hopper", 2), record("sdpa", 3)]
    records += [record("v3_hopper", 3, "full", 256), record("sdpa", 2.8, "full", 256)]
    won, lost = attention_grid.cells(records)
    assert (won.verdict, lost.verdict) == ("faster", "slower")
    (frame,) = attention_map.by_mask_and_shape([won, lost]).layout.shapes
    assert frame.x0 < 1 < frame.x1 and frame.y0 < 1 < frame.y1, "the second shape, the second mask"
    assert not attention_map.by_mask_and_shape([won]).layout.shapes


def test_ratios_below_1_fit_the_cells_of_many_shapes():
    """0.950? and 0.920? ran into each other."""

    def table(shapes):
        sizes = [128 * (n + 1) for n in range(shapes)]
        records = [record(i, ms, seq=s) for s in sizes for i, ms in (("v3_hopper", 3), ("sdpa", 2.8))]
        return attention_map.by_mask_and_shape(attention_grid.cells(records)).data[0].text[0][0]

    assert (table(2), table(12)) == ("0.933", "0.93")


def test_on_a_phone_the_map_has_shapes_down_and_fits():
    """760 pixels wide, its masks' names were out of sight beside all but the first shapes."""
    records = [record("v3_hopper", 2, m, s) for m in ("causal", "full", "strided") for s in (128, 256)]
    records += [record("sdpa", 1.8 if m == "full" else 3, m, 256) for m in ("causal", "full", "strided")]
    found = attention_grid.cells(records)
    fig = attention_map.by_mask_and_shape(found, narrow=True)
    cells = fig.data[0]
    assert (list(cells.x), list(cells.y)) == (["causal", "full", "strided"], ["1×12×256×64"])
    assert list(cells.text[0]) == ["1.50", "0.90", "1.50"] and not cells.showscale
    (frame,) = fig.layout.shapes
    assert frame.x0 < 1 < frame.x1 and frame.y0 < 0 < frame.y1
    assert {point[1] for point in fig.data[1].customdata} == {c.case for c in found}


@pytest.mark.parametrize("draw", ("by_mask_and_shape", "worst_first", "rates"))
def test_a_click_on_any_chart_has_the_case(draw):
    some = attention_grid.cells([r for r in folder.records(RECORDED[0])])
    more = (777.0,) if draw == "rates" else ()
    module = attention_map if draw == "by_mask_and_shape" else attention_grid
    for trace in getattr(module, draw)(some, *more).data:
        assert {point[1] for point in trace.customdata} == {c.case for c in some}


@pytest.mark.slow
@pytest.mark.parametrize("theme", ("light", "dark"))
def test_charts_of_the_recorded_runs(theme):
    records = [r for home in RECORDED for r in folder.records(home)]
    found = attention_grid.cells(records)
    assert len(found) >= 15
    table, worst = (
        attention_map.by_mask_and_shape(found, "H200", theme),
        attention_grid.worst_first(found, "H200", theme),
    )
    assert len(table.data[0].z) == len({attention_grid.mask_name(c.mask) for c in found}) and list(
        worst.data[0].x
    ) == sorted(worst.data[0].x)
    assert len(attention_grid.rates(found, 777.0, "H200", theme).data) == 2
    for draw in (attention_map.by_mask_and_shape, attention_grid.worst_first):
        assert "No case yet" in draw([], "", theme).layout.annotations[0].text
    assert "No case yet" in attention_grid.summary([])


def test_the_script_lists_ten_shapes_of_eight_masks():
    words = [sys.executable, "scripts/attention_grid.py", "cells", "--again"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1].startswith("80 of 80 missing"), done.stderr
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import attention_grid as script
    finally:
        sys.path.pop(0)
    cells = script.grid()
    assert len({json.dumps(c) for c in cells}) == 80 and all(
        script.seconds(c, 13, 0.8, 1) < 25 for c in cells
    )
    assert {c["head_dim"] for c in cells} == {64, 128}
    assert {c["heads"] // c["kv_heads"] for c in script.grid("gqa")} == {4}
    odd = script.grid("odd")
    assert all(c["seq"] % 64 for c in odd) and {c["head_dim"] for c in odd} == {64, 80, 96, 128}
