"""Charts: what a figure must say, whatever the records are: names, verdicts, intervals, units, and nothing
that pretends."""

import dataclasses
import itertools

import numpy as np
import pytest
import synthetic as s
from drawn_page import words

from fusescope.charts import axes, captions, report, tables, template
from fusescope.charts.bench import (
    accuracy,
    distribution,
    edits,
    history,
    overview,
    roofline,
    speedup,
    sweep,
)
from fusescope.charts.masks import thumbnail
from fusescope.charts.profile import occupancy
from fusescope.core.machine.conditions import Conditions
from fusescope.core.records import Speedup

SUBTITLE = captions.context(s.run())


def test_a_bar_for_each_that_ran_and_a_row_for_each_that_did_not():
    fig = speedup.bars(s.point(), "eager", SUBTITLE)
    text = words(fig)
    assert sum(t.type == "bar" for t in fig.data) == 5
    assert (
        "2.60× faster" in text
        and "1.25× slower" in text
        and "out of memory" in text
        and "unsupported" in text
    )
    assert "<s>v3_broken</s>" in text and "wrong" in text and "0.310" in text
    assert "NVIDIA H200" in text and "float16" in text and "kernel time" in text


def test_a_wrong_result_has_no_bar():
    fig = speedup.bars([s.ok("eager", 1, 1, s.case()), s.wrong("v9_x", s.case())], "eager")
    assert [t.y[0] for t in fig.data if t.type == "bar"] == ["eager"]


def test_intervals_are_drawn_and_the_axis_is_a_ratio_around_one():
    fig = speedup.bars(s.point(), "eager")
    bars = [t for t in fig.data if t.type == "scatter"]
    assert len(bars) == 4 and all(t.error_x.array[0] > 0 and t.error_x.arrayminus[0] > 0 for t in bars)
    low, high = fig.layout.xaxis.range
    assert fig.layout.xaxis.type == "log" and low < 0 < high and "1×" in fig.layout.xaxis.ticktext
    assert any(shape.x0 == 1 and shape.x1 == 1 for shape in fig.layout.shapes)


def test_hover_says_median_interval_count_and_status():
    text = speedup.hover(s.ok("sdpa", 0.02, 0.05, s.case()), "eager")
    for part in ("20.0 µs", "n = 200", "faster", "2.50×", "95 %"):
        assert part in text


def test_another_clock_and_missing_convergence_are_said():
    r = s.ok("sdpa", 0.02, 0.05, s.case())
    now = Conditions(sm_mhz=1700, reasons=("power cap",), clock_difference=-0.031)
    r = dataclasses.replace(
        r, conditions=now, time_ms=dataclasses.replace(r.time_ms, graph=s.time(0.02, converged=False))
    )
    hover, mark = speedup.hover(r, "eager"), "SM clock 3.1 % below the baseline's"
    assert mark in hover and "1700 MHz (power cap)" in hover and "did not converge" in hover
    baseline = s.ok("eager", 0.05, 0.05, s.case())
    assert "† SM clock below the baseline's: sdpa 3.1 %" in words(speedup.bars([baseline, r], "eager"))
    same = dataclasses.replace(r, conditions=dataclasses.replace(now, clock_difference=0.009))
    assert "†" not in words(speedup.bars([baseline, same], "eager")), "the power cap is no alarm"


def test_a_table_has_its_notes_where_they_are_seen_and_a_file_by_its_name():
    """The note was the twelfth column and cut at the edge of the window, as was a path after it."""
    own = dataclasses.replace(s.ok("/tmp/me/mine.py:rms", 0.05, 0.05, s.case()), backend="/tmp/me/mine.py")
    table = tables.readable([own, s.ok("eager", 0.05, 0.05, s.case())], "eager")
    columns = list(table.columns)
    assert columns.index("note") == columns.index("cold (µs)") + 1
    assert list(table["ran as"]) == ["mine.py", "eager"]
    assert table["implementation"][0] == "mine.py:rms"


def test_the_mark_of_a_row_is_told_with_its_name():
    """One † stood for three clocks, and none said whose."""
    off = {"eager": 0.0, "sdpa": -0.038, "flex": -0.0991, "v3_tensor": 0.02}
    rows = [
        dataclasses.replace(s.ok(impl, 0.05, 0.05, s.case()), conditions=Conditions(clock_difference=value))
        for impl, value in off.items()
    ]
    said = words(speedup.bars(rows, "eager")).replace("<br>", " ")
    assert "† SM clock below the baseline's: sdpa 3.8 %, flex 9.9 %" in said
    assert "† SM clock above the baseline's: v3_tensor 2.0 %" in said
    busy = [dataclasses.replace(r, conditions=Conditions(busy="others")) for r in rows]
    assert "† busy machine: all" in words(speedup.bars(busy, "eager"))
    assert "† busy machine: eager, sdpa<br>" in words(speedup.bars([*busy[:2], *rows[2:]], "eager"))


def test_a_case_of_many_keys_is_named_by_those_that_the_others_follow_from():
    sizes = {"gpt2": (12, 768, 12, 64, 3072), "llama": (32, 4096, 32, 128, 14336)}
    names = "layers", "width", "heads", "head_dim", "ffn"
    cases = [
        {"layer": layer, "batch": batch, **dict(zip(names, sizes[layer])), "cached": cached}
        for layer, batch, cached in (("gpt2", 1, 512), ("gpt2", 8, 512), ("gpt2", 1, 1000), ("llama", 1, 512))
    ]
    base = s.ok("v1", 0.05, 0.05, s.case())
    rows = [dataclasses.replace(base, case=case) for case in cases]
    assert list(tables.cases(rows)) == [
        "layer=gpt2, batch=1, cached=512",
        "layer=gpt2, batch=8, cached=512",
        "layer=gpt2, batch=1, cached=1000",
        "layer=llama, batch=1, cached=512",
    ]
    few = [dataclasses.replace(base, case={"rows": n, "cols": 2 * n}) for n in (8, 16)]
    assert list(tables.cases(few)) == ["rows=8, cols=16", "rows=16, cols=32"]


def test_no_record_is_a_sentence_and_not_an_empty_frame():
    assert "No record" in words(speedup.bars([], "eager"))
    assert "No result" in words(accuracy.dots([]))
    assert "No raw samples" in words(distribution.strips([], ("graph",)))
    assert "No result has both" in words(roofline.plot([], {}, "eager"))


def test_curves_find_the_swept_parameter_and_label_each_curve_directly():
    records = s.sweep()
    assert sweep.swept_key(records) == "seq" and sweep.swept_key(s.point()) is None
    for quantity in sweep.QUANTITIES:
        fig = sweep.curves(records, "seq", quantity, "eager", SUBTITLE)
        assert fig.layout.xaxis.type == fig.layout.yaxis.type == "log" and not fig.layout.showlegend
        labels = [a.text for a in fig.layout.annotations]
        assert all(any(i in text for text in labels) for i in s.IMPLS)
    with pytest.raises(ValueError, match="quantity is one of"):
        sweep.curves(records, "seq", "joy", "eager")


def test_curves_leave_a_gap_where_a_record_failed():
    records = [r for r in s.sweep() if not (r.impl == "flex" and r.case["seq"] == 1024)]
    records.append(s.failed("flex", s.case(1024), "oom", "out of memory"))
    flex = next(t for t in sweep.curves(records, "seq", "latency", "eager").data if t.name == "flex")
    assert list(flex.x) == [512, 1024, 2048, 4096] and flex.y[1] is None and not flex.connectgaps


def test_samples_are_all_in_the_histogram_and_cold_is_told_from_warm():
    raw = s.samples(s.point()[:2], 1000)
    fig = distribution.strips(raw, ("graph", "graph_cold"), SUBTITLE)
    labels = {a.text for a in fig.layout.annotations}
    assert labels >= {"eager cold", "eager warm", "sdpa cold", "sdpa warm"}
    assert {t.marker.symbol for t in fig.data if t.mode == "markers"} == {"circle", "circle-open"}
    assert "µs" in fig.layout.xaxis.title.text


def test_one_sample_and_equal_samples_can_be_drawn():
    for ms in ([1.0], [2.0, 2.0, 2.0]):
        assert distribution.strips([{"impl": "cpu", "mode": "eager", "ms": ms}], ("eager",)).data


def test_accuracy_strikes_the_wrong_one_and_draws_an_exact_one():
    exact = dataclasses.replace(
        s.ok("cpu", 1, 1, s.case()),
        accuracy=dataclasses.replace(s.ok("cpu", 1, 1, s.case()).accuracy, max_abs=0.0),
    )
    text = words(accuracy.dots([exact, s.wrong("v3_broken", s.case())], (1e-3, 1e-2), SUBTITLE))
    assert "<s>v3_broken</s>" in text and "0.001 + 0.01" in text and "float64" in text


def test_an_infinite_error_can_be_drawn():
    r = s.wrong("v3_broken", s.case())
    r = dataclasses.replace(
        r, accuracy=dataclasses.replace(r.accuracy, max_abs=float("inf"), max_rel=float("nan"))
    )
    assert "∞" in words(accuracy.dots([r]))


def test_the_roofline_names_its_ceilings_and_says_when_it_has_none():
    text = words(roofline.plot(s.point(), s.CEILINGS, "eager", "matrix", SUBTITLE))
    assert "copy 4,300 GB/s" in text and "795" in text and "of the ceiling" in text
    assert "ceilings n/a" in words(roofline.plot(s.point(), {}, "eager"))


def test_history_marks_edits_and_says_what_the_compiler_changed():
    found = [
        history.Edit(
            s.run(finished=1e9 + i * 60), s.ok("v2_x", 1 - i * 0.1, 1, s.case(), source_hash=f"{i // 2:016x}")
        )
        for i in range(4)
    ]
    fig = history.steps(found[::-1], "v2_x", SUBTITLE)
    assert list(fig.data[0].y) == sorted(fig.data[0].y, reverse=True)  # put in order of time
    assert [a.text for a in fig.layout.annotations].count("edit") == 1
    after = dataclasses.replace(
        found[0].record, resources=dataclasses.replace(found[0].record.resources, registers=72, occupancy=0.5)
    )
    assert history.resource_changes(found[0].record, after) == [
        "registers 96 → 72",
        "theoretical occupancy 37.5 % → 50.0 %",
    ]
    assert history.resource_changes(s.wrong("v2_x", s.case()), after) == []


def test_new_against_old_is_named_by_the_clock_and_is_careful():
    old, new = s.ok("v2_x", 1.0, 1, s.case()), s.ok("v2_x", 0.5, 1, s.case())
    gain = edits.compare(new, old)
    assert gain.verdict == "faster" and gain.low < 2 < gain.high
    assert edits.compare(old, old).verdict == "inconclusive"
    assert edits.compare(s.wrong("v2_x", s.case()), old) is None
    text = words(edits.bars([new], [old], s.run(), "v2_x", SUBTITLE))
    assert "v2_x now" in text and "2.00× faster" in text
    assert "wrong" in words(edits.bars([s.wrong("v2_x", s.case())], [old], s.run(), "v2_x"))


def test_occupancy_marks_the_chosen_point():
    fig = occupancy.stairs([32, 64, 96], [1.0, 0.5, 0.25], 64, "registers", "a thread")
    assert fig.data[1].x == (64,) and fig.data[1].y == (50.0,) and "50.0 %" in words(fig)


def test_a_picture_counts_every_cell_once():
    keep = np.random.default_rng(0).random((1000, 77)) < 0.3
    shares = thumbnail.shrink(keep, 64)
    assert shares.shape == (64, 64) and 0 <= shares.min() <= shares.max() <= 1
    rows, columns = (np.diff(np.linspace(0, n, 65).astype(int)) for n in keep.shape)
    assert np.isclose((shares * rows[:, None] * columns[None, :]).sum(), keep.sum())
    assert thumbnail.shrink(np.ones((3, 5), bool)).shape == (3, 5)


def test_a_picture_of_sampled_rows_is_that_of_the_rows_together():
    keep = np.random.default_rng(0).random((256, 1000)) < 0.3
    shares, density = thumbnail.of_rows(row[None] for row in keep)
    assert np.allclose(shares, thumbnail.shrink(keep), atol=1e-6) and np.isclose(density, keep.mean())


def test_tables_give_csv_all_and_eyes_what_varies():
    records = s.sweep()
    data = tables.tidy(records, "eager")
    assert len(data) == len(records) and {"seq", "graph_ms", "speedup_low", "max_abs", "source_hash"} <= set(
        data.columns
    )
    shown = tables.readable(records, "eager")
    assert "seq" in shown.columns and "seq_k" not in shown.columns and "batch" not in shown.columns
    assert list(tables.cases(records)) == ["seq=512", "seq=1024", "seq=2048", "seq=4096"]
    assert list(tables.cases(s.point())) == ["the case"]


def test_table_and_chart_share_one_order_and_the_check_comes_first():
    records = s.point()[::-1]
    chart = [name.rpartition("/")[2] for name in speedup.bars(records, "eager").layout.yaxis.categoryarray]
    shown = tables.readable(tables.ordered(records), "eager")
    assert list(shown["implementation"]) == chart[::-1] and shown.columns[0] == "check"
    assert shown["check"][0] == "✓ correct" and {"✗ wrong", "– unavailable"} <= set(shown["check"])
    masks = [r for r in s.two_masks() if r.impl in ("eager", "sdpa")][::-1]
    assert [r.case["mask"] for r in tables.ordered(masks)] == ["causal", "causal", "bigbird", "bigbird"]


def test_a_ratio_below_one_is_said_as_how_many_times_slower():
    records = [s.ok("eager", 0.01, 0.01, s.case()), s.ok("v1_x", 0.103, 0.01, s.case())]
    shown = tables.readable(records, "eager")
    cells = overview.cells([*records, *s.two_masks()], "eager")
    assert shown["verdict"][1] == "▼ 10.3× slower" and "10.3× slower" in speedup.hover(records[1], "eager")
    assert "▼10" in words(cells) and "0.0971" not in words(cells) + shown.to_csv()


def test_the_axis_of_a_tall_chart_is_on_top_and_reasons_are_whole_on_hover():
    reason = "needs Hopper (sm_90a): TMA, wgmma and clusters of thread blocks are used by this kernel"
    missing = dataclasses.replace(s.failed("v5_parts", s.case()), reason=reason)
    few = [r for r in s.point() if r.status == "ok"]
    fig = speedup.bars([*few, missing], "eager")
    texts = {a.text: a.hovertext for a in fig.layout.annotations}
    [wrapped] = [t for t in texts if t.startswith("needs Hopper")]
    assert fig.layout.xaxis.side == "top" and wrapped.replace("<br>", " ") == reason
    assert texts[wrapped] == reason
    crowded = speedup.bars([*s.point(), missing], "eager").layout.annotations
    assert all(
        "<br>" not in a.text and a.hovertext == reason for a in crowded if a.text.startswith("needs H")
    )


def test_a_report_is_one_file_that_asks_nobody_for_anything_and_trusts_nothing():
    run = s.run(title="<script>alert(1)</script>", notes="5 > 3 & so on")
    page = report.page(run, s.sweep(), s.samples(s.point()[:2], 20), "fusescope bench attention")
    assert "<script>alert" not in page and "&lt;script&gt;" in page
    head = page.replace(report.get_plotlyjs(), "")
    assert "src=" not in head and "http" not in head and "Plotly.newPlot" in head
    assert "2.60× faster" in head.encode().decode("unicode_escape", "ignore") or "2.60" in head
    assert "NVIDIA H200" in head and "fusescope bench attention" in head
    assert "cancelled before any result" in report.page(s.run(), [])


def test_what_a_run_says_of_itself_cannot_become_markup_in_a_chart():
    run = s.run(environment={"device_name": "<img src=x onerror=alert(1)>"})
    assert "<img src=x" not in report.page(run, s.point())


def test_an_interval_over_many_decades_does_not_flatten_the_chart():
    wide = s.ok("sdpa", 0.02, 0.05, s.case())
    wide = dataclasses.replace(wide, speedup=dataclasses.replace(wide.speedup, low=-0.5, high=4e6))
    records = [s.ok("eager", 0.05, 0.05, s.case()), wide]
    low, high = speedup.bars(records, "eager").layout.xaxis.range
    assert -1 < low < 0 < high < 1.2
    both = [*records, *(dataclasses.replace(r, case=s.case(1024)) for r in records)]
    low, high = sweep.curves(both, "seq", "speed-up", "eager").layout.yaxis.range
    assert -1 < low < 0 < high < 1.2


def test_cases_that_differ_in_several_ways_are_no_sweep():
    records = [s.ok("eager", 1, 1, s.case(seq, batch)) for seq, batch in ((512, 1), (1024, 2), (1024, 4))]
    assert sweep.swept_key(records) is None and len(tables.cases(records)) == 3
    together = [
        dataclasses.replace(s.ok("eager", 1, 1, {}), case={"m": n, "n": n, "k": n}) for n in (64, 128)
    ]
    assert sweep.swept_key(together) == "m"


def test_every_curve_keeps_its_name_inside_the_axis_where_ends_meet():
    records = [s.ok(f"peer{n}", 1.0, 1.0, s.case(seq)) for n in range(6) for seq in (512, 1024)]
    fig = sweep.curves(records, "seq", "speed-up", "peer0")
    low, high = fig.layout.yaxis.range
    heights = sorted(a.y for a in fig.layout.annotations)
    assert len(heights) == 6 and low <= heights[0] and heights[-1] <= high
    assert min(b - a for a, b in itertools.pairwise(heights)) > 0


def test_ratio_ticks_keep_their_distance_and_always_name_one():
    for values in ([0.126, 7.64], [0.02, 900.0], [0.97, 1.03], [1.2, 1.4], [0.5, 2.0]):
        axis = axes.ratio(values)
        low, high = axis["range"]
        places = [np.log10(t) for t in axis["tickvals"]]
        assert "1×" in axis["ticktext"] and 2 <= len(places) <= 7
        assert min(np.diff(places)) >= 0.15 * (high - low)


def test_a_subtitle_too_long_for_a_narrow_chart_continues_on_the_next_line():
    long = "NVIDIA H200 · float16 · 20 Nov 2026 11:36 · kernel time (graph replay), warm cache"
    lines = template.wrapped(long).split("<br>")
    assert len(lines) == 2 and max(map(len, lines)) <= 58 and " · ".join(lines) == long
    one, two = (template.figure("Title", text) for text in ("short", long))
    assert two.layout.height > one.layout.height and two.layout.margin.t > one.layout.margin.t


def test_what_did_not_converge_is_neither_bold_nor_solid_nor_first():
    noisy = dataclasses.replace(
        s.ok("sdpa", 0.517, 0.447, s.case()), speedup=Speedup("graph", 1.33, 1.07, 3.06)
    )
    fig = speedup.bars([noisy, s.ok("eager", 0.447, 0.447, s.case())], "eager")
    text = words(fig)
    assert "? inconclusive (too noisy)" in text and "faster" not in text
    assert "<b>? inconclusive" not in text
    assert list(fig.layout.yaxis.categoryarray) == ["sdpa", "eager"], "the fastest is on top"
    assert {bar.opacity for bar in fig.data if bar.type == "bar"} == {0.35, 1.0}


def test_words_above_rows_keep_what_was_written_before():
    fig = template.figure("t", "", "light", 200)
    fig.add_annotation(text="before")
    axes.row_labels(fig, {"a": ("left", "right"), "b": ("l", "r")}, 10, "light")
    assert [a.text for a in fig.layout.annotations] == ["before", "left", "right", "l", "r"]
    assert [a.y for a in fig.layout.annotations[1:]] == ["a", "a", "b", "b"]
