"""Nsight Compute's source page: lines and instructions with their stall samples, in both forms, and what is
none."""

import gzip

import pytest
from made_up import tables

from fusescope.profiling import forms, importing

METRICS = (
    '"Warp Stall Sampling (All Samples)","Warp Stall Sampling (Not-issued Samples)","# Samples",'
    '"Instructions Executed","stall_barrier","stall_long_sb","stall_selected","stall_barrier (Not Issued)",'
)
SASS = f"""\
"Kernel Name","void k<(int)64>(float *, int)",
"Address","Source",{METRICS}
"0x7f5e0a500f00","      LDG.E R2, [R2.64] ","10","8","10","1,024","0","2","8","0",
"0x7f5e0a500f10","      FADD R5, R2, ""x"" ","90","90","90","1,024","0","90","0","0",
"0x7f5e0a500f20","      EXIT ","-","-","-","1,024","-","-","-","-",
"""
LINES = f"""\
==PROF== Connected to process 7
"File Path","/home/me/k.cu"
"Function Name","k(float *, int)"
"Line No","Source","Address","Source",{METRICS}
"12","  float a = x[i];","-","-","10","8","10","2048","0","2","8","0",
"","","0x10","LDG.E R2, [R2.64]","10","8","10","2048","0","2","8","0",
"13","  y[i] = a + 1;","-","-","90","90","90","2048","0","90","0","0",
"","","0x20","FADD R5, R2, 1","90","90","90","2048","0","90","0","0",
"14","}}","-","-","-","-","-","-","-","-","-","-",
"""
OTHER_FILE = LINES.replace("/home/me/k.cu", "/home/me/inline.cuh").replace(
    "==PROF== Connected to process 7\n", ""
)


def load(tmp_path, text, name="page.csv"):
    file, out = tmp_path / name, tmp_path / "out"
    out.mkdir(exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    form = forms.detect(file)
    assert form == "ncu-source"
    summary = importing.load(file, form, lambda name: out / name, lambda share, text: None)
    return summary, tables(out)["ncu_source"]


def test_instructions_with_their_samples(tmp_path):
    summary, rows = load(tmp_path, SASS)
    assert [r["kind"] for r in rows] == ["sass"] * 3 and summary["launches"] == 1
    load_, add, leave = rows
    assert add["text"] == 'FADD R5, R2, "x"' and add["samples"] == 90 and add["stall_long_sb"] == 90
    assert load_["instructions"] == 1024 and load_["address"] == "0x7f5e0a500f00"
    assert leave["samples"] is None and leave["instructions"] == 1024, "a dash is not measured, not 0"
    assert "stall_barrier (Not Issued)" not in add and not [n for n in summary["notes"] if "sample" in n]


@pytest.mark.parametrize("packed", [False, True])
def test_lines_with_their_instructions(tmp_path, packed):
    text = LINES.encode()
    summary, rows = load(
        tmp_path, gzip.compress(text) if packed else text, "page.csv.gz" if packed else "p.csv"
    )
    lines = [r for r in rows if r["kind"] == "line"]
    assert [(r["line"], r["samples"]) for r in lines] == [(12, 10), (13, 90), (14, None)]
    assert lines[0]["text"] == "  float a = x[i];" and lines[0]["file"] == "/home/me/k.cu"
    below = [r for r in rows if r["kind"] == "sass"]
    assert [(r["line"], r["address"]) for r in below] == [(12, "0x10"), (13, "0x20")]
    assert summary["notes"] == ["lines skipped that are none of the listing: 1"]


def test_files_of_a_kernel_are_one_launch_and_the_next_kernel_another(tmp_path):
    summary, rows = load(tmp_path, LINES + OTHER_FILE + LINES)
    files = {(r["launch"], r["file"].rpartition("/")[2]) for r in rows}
    assert files == {(0, "k.cu"), (0, "inline.cuh"), (1, "k.cu")} and summary["launches"] == 2


def test_a_page_without_samples_says_how_to_collect_them(tmp_path):
    summary, _ = load(tmp_path, '"Address","Source","Instructions Executed",\n"0x10","EXIT","5",\n')
    assert "SourceCounters" in summary["notes"][0]


def test_a_header_alone_is_refused_in_a_sentence(tmp_path):
    file = tmp_path / "page.csv"
    file.write_text('"Kernel Name","k"\n"Address","Source","# Samples",\n')
    with pytest.raises(ValueError, match=r"^page\.csv has the header .* and no line under it$"):
        importing.load(file, forms.detect(file), lambda n: tmp_path / n, lambda share, text: None)


@pytest.mark.parametrize("value", ["1e30", "12.5", "nan", "9" * 40, "=1+1", "-3"])
def test_what_is_no_count_is_left_out_and_said(tmp_path, value):
    text = f'"Address","Source","# Samples","stall_lg",\n"0x1","EXIT","{value}","7",\n"0x2","NOP","5","2",\n'
    summary, rows = load(tmp_path, text)
    assert [r["samples"] for r in rows] == [None, 5] and rows[0]["stall_lg"] == 7
    assert summary["notes"] == ["cells left out that hold no whole number: 1"]
