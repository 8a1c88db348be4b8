"""Nsight Compute's tables from other locales, several in one file, cut short or damaged: read right, refused,
or noted; never a number that is not the file's."""

import re

import pytest
from made_up import DATA
from test_ncu import LONG, WIDE, load, long

from fusescope.profiling import forms
from fusescope.profiling.nsight.ncu_numbers import decimal_sign, number

REAL = DATA / "nsight" / "ncu_details_copy_blocked.csv"
SOL = "GPU Speed Of Light Throughput"
LOCALES = {
    "German": (".", ","),
    "French": ("\u202f", ","),
    "French, no-break space": ("\u00a0", ","),
    "Swiss": ("’", "."),
    "English": (",", "."),
    "C": ("", "."),
}


def written(value: float, locale: str) -> str:
    group, point = LOCALES[locale]
    return f"{value:,.2f}".replace(",", "\0").replace(".", point).replace("\0", group)


def report(locale: str) -> str:
    def cell(value):
        return written(value, locale)

    return (
        LONG
        + long(SOL, "Duration", "us", cell(21058.94))
        + long(SOL, "Compute (SM) Throughput", "%", cell(71.85))
        + long(SOL, "Memory Throughput", "%", cell(61.8))
        + long("Occupancy", "Achieved Occupancy", "%", cell(96.4))
        + long("Launch Statistics", "Registers Per Thread", "register/thread", "16")
    )


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_every_locale_gives_the_same_numbers(locale, encoding, tmp_path):
    if encoding == "cp1252" and LOCALES[locale][0] == "\u202f":
        pytest.skip("cp1252 has no narrow no-break space")
    (tmp_path / "a.csv").write_bytes(report(locale).encode(encoding))
    summary, rows = load(tmp_path / "a.csv", tmp_path / "out")
    row = rows["ncu_kernels"][0]
    assert row["duration_ns"] == pytest.approx(21_058_940) and row["sm_percent"] == 71.85
    assert row["measured_occupancy"] == pytest.approx(0.964) and row["registers"] == 16
    assert any("decimal comma" in n for n in summary["notes"]) == (LOCALES[locale][1] == ",")


@pytest.mark.skipif(not REAL.is_file(), reason=f"no real report at {REAL}")
@pytest.mark.parametrize("locale", ["German", "French"])
def test_a_real_report_in_another_locale(locale, tmp_path):
    group, point = LOCALES[locale]

    def localised(match):
        return f'"{match[1].replace(",", chr(0)).replace(".", point).replace(chr(0), group)}"'

    lines = REAL.read_text().splitlines(keepends=True)
    text = "".join(re.sub(r'"(-?\d{1,3}(?:,\d{3})*(?:\.\d+)?)"', localised, line) for line in lines)
    text = text.replace(f'"7{point}5"', '"7.5"')  # the compute capability is no number
    assert text != "".join(lines)
    (tmp_path / "a.csv").write_text(text)
    _, want = load(REAL, tmp_path / "want")
    _, rows = load(tmp_path / "a.csv", tmp_path / "out")
    assert rows["ncu_kernels"] == want["ncu_kernels"] and rows["ncu_stalls"] == want["ncu_stalls"]


def test_what_shows_no_locale_is_read_as_groups_and_noted(tmp_path):
    (tmp_path / "a.csv").write_text(LONG + long(SOL, "Duration", "ns", "1,234"))
    summary, rows = load(tmp_path / "a.csv", tmp_path / "out")
    assert rows["ncu_kernels"][0]["duration_ns"] == 1234
    assert any("no number says whether commas group digits" in n for n in summary["notes"])


def test_points_and_commas_alike_are_refused(tmp_path):
    text = LONG + long(SOL, "Duration", "ns", "12.5") + long(SOL, "Memory Throughput", "%", "12,5")
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match="decimal points and decimal commas alike"):
        load(tmp_path / "a.csv", tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "sign", "want"),
    [
        ("1.234,5", ",", 1234.5),
        ("1.234.567", ",", 1234567.0),
        ("1 234,5", ",", 1234.5),
        ("12,34,567.5", ".", 1234567.5),
        ("1.2.3", ".", "1.2.3"),
        ("1,2", ".", "1,2"),
        ("31.25", ",", "31.25"),
        ("1e3", ".", 1000.0),
        ("-", ".", "-"),
        (".", ".", "."),
        ("-infinity", ".", None),
    ],
)
def test_a_cell_is_a_number_of_its_notation_or_text(text, sign, want):
    assert number(text, "", sign)[0] == want


def test_the_sign_needs_proof():
    assert decimal_sign(["12", "1,234", "text", "(1, 2)"]) is None
    assert decimal_sign(["1,234", "0,5", "12,25"]) == "," and decimal_sign(["1,234", "0.5"]) == "."


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_table_saved_again_by_a_spreadsheet(separator, tmp_path):
    text = report("German").replace('","', f'"{separator}"')
    (tmp_path / "a.csv").write_text(text)
    assert forms.detect(tmp_path / "a.csv") == "ncu"
    _, rows = load(tmp_path / "a.csv", tmp_path / "out")
    assert rows["ncu_kernels"][0]["sm_percent"] == 71.85


def test_two_tables_in_one_file(tmp_path):
    raw = (
        WIDE + '"sm__throughput.avg.pct_of_peak_sustained_elapsed"\n' + ",".join(['""'] * 11 + ['"%"']) + "\n"
    )
    raw += '"0","9","p","h","k<1>(int)","1","7","(128, 1, 1)","(10, 1, 1)","0","9.0","55.5"\n'
    raw += '"1","9","p","h","other(int)","1","7","(128, 1, 1)","(10, 1, 1)","0","9.0","44.5"\n'
    (tmp_path / "a.csv").write_text(LONG + long(SOL, "Duration", "us", "5.25") + "==PROF== again\n" + raw)
    summary, rows = load(tmp_path / "a.csv", tmp_path / "out")
    found = [(r["name"], r["duration_ns"], r["sm_percent"]) for r in rows["ncu_kernels"]]
    assert found == [("k<1>(int)", 5250.0, 55.5), ("other(int)", None, 44.5)]
    assert any("holds 2 tables" in n and "1 launches stand in more than one" in n for n in summary["notes"])


def test_tables_of_two_processes_are_two_reports(tmp_path):
    first = LONG + long(SOL, "Duration", "us", "5.25")
    (tmp_path / "a.csv").write_text(first + first.replace('"0","9",', '"0","10",'))
    _, rows = load(tmp_path / "a.csv", tmp_path / "out")
    assert [r["name"] for r in rows["ncu_kernels"]] == ["k<1>(int)"] * 2


@pytest.mark.slow
def test_every_cut_of_a_table_is_whole_rows_and_a_note(tmp_path):
    text = (
        LONG
        + "".join(long(SOL, m, "%", "12.34") for m in ("Duration", "Memory Throughput"))
        + long("Occupancy", "Achieved Occupancy", "%", "98.76")
    )
    for cut in range(len(LONG) + len(long(SOL, "Duration", "%", "12.34")) + 6, len(text) - 1, 3):
        (tmp_path / "a.csv").write_text(text[:cut])
        summary, rows = load(tmp_path / "a.csv", tmp_path / "out")
        values = {m["metric"]: m["value"] for m in rows["ncu_metrics"]}
        assert set(values.values()) <= {12.34, 98.76}, (cut, values)
        whole = text[:cut].count("\n") - 1
        if whole < 3 and not text[:cut].endswith("\n"):
            closed = text[:cut].endswith('"') and len(values) > whole
            assert closed or any("truncated" in n for n in summary["notes"]), (cut, text[:cut][-40:])


def test_a_last_launch_with_few_metrics_is_noted(tmp_path):
    metrics = [f"Metric {n}" for n in range(9)]
    text = LONG + "".join(long(SOL, m, "%", "12.34") for m in metrics) + long(SOL, metrics[0], "%", "1.5", 1)
    (tmp_path / "a.csv").write_text(text)
    summary, _ = load(tmp_path / "a.csv", tmp_path / "out")
    assert any("the last launch has 1 metrics" in n for n in summary["notes"])


@pytest.mark.parametrize(
    ("section", "metric", "unit", "value", "column"),
    [
        (SOL, "Compute (SM) Throughput", "%", "140.5", "sm_percent"),
        ("Occupancy", "Achieved Occupancy", "%", "130.5", "measured_occupancy"),
        ("Launch Statistics", "Registers Per Thread", "", "300.5", "registers"),
        (SOL, "Duration", "ns", "-12.5", "duration_ns"),
    ],
)
def test_what_cannot_be_is_left_out_and_noted(section, metric, unit, value, column, tmp_path):
    (tmp_path / "a.csv").write_text(LONG + long(section, metric, unit, value))
    summary, rows = load(tmp_path / "a.csv", tmp_path / "out")
    assert rows["ncu_kernels"][0][column] is None
    assert any("cannot be" in n and "in launch 0" in n for n in summary["notes"])


def test_numbers_far_beyond_their_bounds_refuse_the_file(tmp_path):
    (tmp_path / "a.csv").write_text(LONG + long(SOL, "Compute (SM) Throughput", "%", "7,185.00"))
    with pytest.raises(ValueError, match=r"SM throughput in % of 7,185 .* misread or are damaged"):
        load(tmp_path / "a.csv", tmp_path / "out")


def test_more_traffic_than_any_memory_has_is_left_out(tmp_path):
    text = LONG + long(SOL, "Duration", "ns", "1.25") + long("", "dram__bytes_read.sum", "Gbyte", "80.25")
    (tmp_path / "a.csv").write_text(text)
    summary, rows = load(tmp_path / "a.csv", tmp_path / "out")
    assert rows["ncu_kernels"][0]["read_bytes"] is None and any(
        "bytes of DRAM" in n for n in summary["notes"]
    )


@pytest.mark.parametrize("unit", ["", "minute", "cycle", "%"])
def test_a_duration_of_another_unit_is_not_read_and_noted(unit, tmp_path):
    text = LONG + long(SOL, "Duration", unit, "5.25") + long(SOL, "Memory Throughput", "%", "61.8")
    (tmp_path / "a.csv").write_text(text)
    summary, rows = load(tmp_path / "a.csv", tmp_path / "out")
    row = rows["ncu_kernels"][0]
    assert row["duration_ns"] is None and row["memory_percent"] == 61.8
    said = f"its unit is {unit!r}" if unit else "it has no unit"
    assert f"gpu__time_duration.sum is not read in 1 launch: {said}" in summary["notes"]


def test_sizes_and_times_of_a_wide_table_without_its_line_of_units_are_not_read(tmp_path):
    wide = WIDE + '"gpu__time_duration.sum","dram__bytes_read.sum","launch__registers_per_thread"\n'
    row = '"0","9","p","h","k<1>(int)","1","7","(128, 1, 1)","(10, 1, 1)","0","9.0","5.25","1.5","32"\n'
    (tmp_path / "a.csv").write_text(wide + row)
    summary, rows = load(tmp_path / "a.csv", tmp_path / "out")
    found = rows["ncu_kernels"][0]
    assert found["duration_ns"] is None and found["read_bytes"] is None and found["registers"] == 32
    assert sum("it has no unit" in note for note in summary["notes"]) == 2


@pytest.mark.skipif(not REAL.is_file(), reason=f"no real report at {REAL}")
def test_every_unit_of_a_real_report_is_read(tmp_path):
    for path in sorted((DATA / "nsight").glob("ncu_*.csv*")):
        summary, _ = load(path, tmp_path / path.name)
        assert [note for note in summary["notes"] if "is not read in" in note] == [], path.name
