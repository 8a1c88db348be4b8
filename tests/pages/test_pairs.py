"""Charts, tables and sentences of compared runs: verdicts, and differences that are none."""

import dataclasses

import pytest
import synthetic as s
from drawn_page import words

from fusescope.analysis.compare import columns
from fusescope.charts import captions, template
from fusescope.charts.compared import differences, pairs, undecided
from fusescope.core import same_code
from fusescope.core.records import Times


def _two(times):
    """A comparison of two runs: {(implementation, seq): (median of A, median of B or None)} in ms."""
    sides = [[], []]
    for (impl, seq), pair in times.items():
        for side, median in zip(sides, pair, strict=True):
            if median:
                side.append(s.ok(impl, median, median, s.case(seq)))
    runs = [s.run(f"2026112{n}-120000-bench-00000{n}") for n in (0, 1)]
    return columns.compare([columns.Source(r, tuple(found)) for r, found in zip(runs, sides, strict=True)])


def test_two_runs_side_by_side():
    found = _two({("sdpa", 64): (1.5, 1.0), ("sdpa", 128): (1.5, 1.0), ("cpu", 128): (1.0, 2.0)})
    text = words(pairs.bars(found, pairs.names(found), captions.context(s.run())))
    assert "1.50× faster" in text and "2.00× slower" in text and "0.500" not in text
    assert "cpu 128" in text and "rows: implementation, seq<br>time of A over time of B" in text
    assert "[" in text.partition("2.00× slower")[2][:8], "whiskers have their numbers"
    said = pairs.sentence(found, 1, pairs.names(found))
    assert said.startswith("B against A: faster in 2, slower in 1 of 3 rows; ")
    assert "the largest difference is cpu seq=128, ▼ 2.00× slower [" in said
    even = _two({("sdpa", 64): (1.0, 1.002), ("sdpa", 128): (1.0, 1.001)})
    assert "; 1.00× in the geometric mean" in pairs.sentence(even, 1, "AB")
    none = _two({("sdpa", 64): (1.0, None)})
    assert "No implementation" in words(pairs.bars(none, pairs.names(none)))
    assert pairs.sentence(none, 1, "AB") == "B has no time that can be compared with A."
    assert pairs.why(none, "AB", 0, "B: speed-up (×)") == "B: not measured"


def _devices(times):
    """As ``_two``, of three runs of one source: A and B on one device, C on another."""
    runs = [s.run(f"2026112{n}-120000-bench-00000{n}") for n in (0, 1, 2)]
    runs[2] = dataclasses.replace(runs[2], environment={"device_name": "NVIDIA H100 80GB HBM3"})
    sources = [
        columns.Source(
            r, tuple(s.ok("v1_x", ms[n], ms[n], s.case(seq), source_hash="a") for seq, ms in times.items())
        )
        for n, r in enumerate(runs)
    ]
    return columns.compare(sources)


def test_another_device_is_a_difference_of_its_own_and_never_faster():
    found = _devices({64: (1.0, 0.5, 1.6), 128: (1.0, 2.0, 0.8)})
    names = pairs.names(found)
    assert pairs.sentence(found, 2, names) == "" and "faster in 1" in pairs.sentence(found, 1, names)
    said = differences.sentence(found, 2, names)
    assert said.startswith(
        "C compared with A, no verdict (other device: NVIDIA H200 against NVIDIA H100 80GB HBM3): H100"
    )
    assert "H100 takes 1.13× the time of H200 in the geometric mean of 2 rows with the same source" in said
    assert "H200 takes 1.25× the time of H100 and H100 takes 1.60× the time of H200" in said
    assert differences.sentence(found, 1, names) == "" and "faster" not in said
    permitted, others = pairs.bars(found, names), pairs.bars(found, names, unlike=True)
    assert " · C" not in words(permitted) and "faster" in words(permitted)
    assert "faster" not in words(others) and "C takes 1.60× the time of A [" in words(others)
    assert "source differs" not in words(others)
    assert {b.marker.pattern.shape for b in others.data if b.type == "bar"} == {"/"}
    assert any(t.error_x.array for t in others.data if t.type == "scatter"), "whiskers everywhere"
    data = pairs.table(found, names)
    assert set(data["C: verdict"]) == {"no verdict: other device"} and data["C: speed-up (×)"].isna().all()
    assert sorted(data["C: time over A's (×)"]) == pytest.approx([0.8, 1.6])
    column = "C: speed-up (×)"
    assert pairs.why(found, names, 0, column).startswith("no verdict: other device")
    assert pairs.why(found, names, 0, "B: machine code") and pairs.tidy(found)["verdict"].notna().sum() == 2


def test_a_bar_of_another_device_says_where_the_source_differs_too():
    runs = [s.run(f"2026112{n}-120000-bench-00000{n}") for n in (0, 1)]
    runs[1] = dataclasses.replace(runs[1], environment={"device_name": "NVIDIA H100 80GB HBM3"})
    sources = [
        columns.Source(run, tuple(s.ok(i, 1.0, 1.0, s.case(), source_hash=h) for i, h in hashes))
        for run, hashes in zip(
            runs, ([("v1_x", "a"), ("v2_x", "a")], [("v1_x", "a"), ("v2_x", "b")]), strict=True
        )
    ]
    found = columns.compare(sources)
    names = pairs.names(found)
    text = words(pairs.bars(found, names, unlike=True))
    assert "v2_x · source differs" in text and "v1_x · source differs" not in text
    assert "in one row. In 1 further row the source differs as well" in differences.sentence(found, 1, names)


def test_what_is_not_drawn_is_said_with_the_order_and_where_it_is():
    found = _two({("sdpa", 64 + n): (1.5, 1.0) for n in range(50)})
    text = words(pairs.bars(found, pairs.names(found), "A: H200 · B: H200"))
    assert "A: H200 · B: H200<br>40 of 50 bars, proven and largest first; table has all" in text


def test_bars_have_the_colour_of_their_verdict():
    fig = pairs.bars(found := _two({("sdpa", 64): (1.5, 1.0), ("cpu", 64): (1.0, 2.0)}), pairs.names(found))
    assert {b.marker.color for b in fig.data if b.type == "bar"} == {template.FASTER, template.SLOWER}
    fig = pairs.bars(found := _two({("sdpa", 64): (1.0, 1.02)}), pairs.names(found))
    assert not {b.marker.color for b in fig.data if b.type == "bar"} & {template.FASTER, template.SLOWER}


def test_what_would_narrow_an_inconclusive_interval_is_said():
    runs = [s.run(f"2026112{n}-120000-bench-00000{n}") for n in (0, 1)]
    known = [(200, True), (200, True), (20, True), (200, False)]
    records = [
        dataclasses.replace(s.ok("v1_x", 1, 1, s.case(64 + n)), time_ms=Times(None, graph=s.time(1.0, *time)))
        for n, time in enumerate(known)
    ]
    found = columns.compare([columns.Source(run, tuple(records)) for run in runs])
    said = undecided.sentence(found, 1)
    assert said.startswith(
        "Inconclusive: 1 did not converge in one of the runs (a factor of 1.5 is left open)"
    )
    assert "1 has too few samples (up to 25 % is left open), 2 are too close for two runs (5 %" in said
    assert "(budget) narrows" in said and said.endswith("For the last, measure both in one run, in turn.")
    assert undecided.sentence(_two({("v1_x", 64): (1.0, 2.0)}), 1) == ""


def test_a_comparison_names_columns_by_letters():
    assert [pairs.letter(n) for n in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "AB", "BA"]


@pytest.mark.parametrize(
    ("hashes", "same"), [(("before", "after"), True), (("before", "other"), False), ((None, "after"), None)]
)
def test_an_edit_that_kept_the_machine_code_is_the_same_code(monkeypatch, tmp_path, hashes, same):
    monkeypatch.setenv("FUSESCOPE_CUDA", str(tmp_path))
    same_code.add(tmp_path, {("attention", "v1_x"): ("before", "after")})
    runs = [s.run(f"2026112{n}-120000-bench-00000{n}") for n in (0, 1)]
    sources = [
        columns.Source(run, (dataclasses.replace(s.ok("v1_x", 1.0, 1.0, s.case()), source_hash=one),))
        for run, one in zip(runs, hashes, strict=True)
    ]
    found = columns.compare(sources)
    assert list(pairs.table(found, "AB")["B: same machine code"]) == [same]
