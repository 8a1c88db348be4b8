"""A small Parquet file cannot take much memory or time: what it would grow to is known first."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.store import profile
from fusescope.store.bounded import pages, parquet

LOOK = """
import json, resource, sys, time
from pathlib import Path
from fusescope.core.errors import RunError
from fusescope.store import chrome, profile, timeline
import pyarrow.parquet, duckdb, pandas
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run, said, begin = Path(sys.argv[1]), [], time.process_time()
for look in (
    lambda: profile.table(run, "kernels"), lambda: profile.rows(run, "kernels", 3),
    lambda: profile.page(run, "kernels"), lambda: list(profile.csv(run, "kernels")),
    lambda: timeline.lanes(run), lambda: timeline.tree(run), lambda: timeline.series(run, "kernels", "ts_ns"),
):
    try:
        look()
        said.append("")
    except RunError as error:
        said.append(str(error))
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"said": said, "grown_mib": grown >> 10, "seconds": time.process_time() - begin}))
"""


def repeated(rows, text):
    """A dictionary of one text that every row repeats, which takes no room in the file."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def zeros(rows):
    return pa.array(np.zeros(rows, np.int64))


def lists(rows):
    offsets = pa.array(np.array([0, rows], np.int32))
    return pa.ListArray.from_arrays(offsets, zeros(rows))


BOMBS = {
    "texts": lambda: ({"name": repeated(20_000, "x" * 400_000)}, {}),
    "plain texts": lambda: ({"name": repeated(1_000, "x" * 400_000).cast(pa.string())}, {}),
    "rows": lambda: ({"ts_ns": zeros(20_000_000)}, {}),
    "packed": lambda: ({"name": pa.array(["x" * 100_000_000])}, {"use_dictionary": False}),
    "lists": lambda: ({"name": lists(20_000_000)}, {}),
    "columns": lambda: ({f"c{n}": zeros(1) for n in range(600)}, {}),
}
"""What to write, made when it is: some take gigabytes."""


def write(folder, columns, **options):
    (folder / "artifacts").mkdir(parents=True)
    file = folder / "artifacts" / "kernels.parquet"
    pq.write_table(pa.table(columns), file, compression="zstd", **options)
    return file


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_one_sentence_in_little_memory(tmp_path, name):
    columns, options = BOMBS[name]()
    file = write(tmp_path / "run", columns, **options)
    assert file.stat().st_size < 1 << 19
    env = {"PYTHONPATH": paths.python_path(), "PATH": "/usr/bin:/bin"}
    found = subprocess.run(
        [sys.executable, "-c", LOOK, str(file.parents[1])], env=env, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    data = json.loads(found.stdout)
    assert all("is refused: " in said and "\n" not in said for said in data["said"]), data
    assert data["grown_mib"] < 300 and data["seconds"] < 10, data


def varint(value, length=0):
    """A signed number as Thrift writes it, padded to a length."""
    value, out = value << 1, b""
    while value > 127 or len(out) + 1 < length:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def lying(folder, columns, true, said, everywhere=False, **options):
    """A table in whose footer, or everywhere, one number is another one."""
    file = write(folder, columns, **options)
    data = file.read_bytes()
    footer = 0 if everywhere else len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    old, new = varint(true), varint(said, len(varint(true)))
    assert data[footer:].count(old)
    file.write_bytes(data[:footer] + data[footer:].replace(old, new))
    return file


@pytest.mark.slow
def test_a_footer_that_says_less_than_its_pages_unpack_to_hides_no_bomb(tmp_path):
    columns = {"name": pa.array(["x" * 100_000_000])}
    options = {"use_dictionary": False, "write_statistics": False}
    true = pq.read_metadata(write(tmp_path / "true", columns, **options))
    size = true.row_group(0).column(0).total_uncompressed_size
    file = lying(tmp_path / "lie", columns, size, 1000, **options)
    assert pq.read_metadata(file).row_group(0).column(0).total_uncompressed_size == 1000
    with pytest.raises(RunError, match="is refused: it would take 95 MiB of memory or more"):
        profile.table(tmp_path / "lie", "kernels")


def test_a_dictionary_of_more_values_than_bytes_is_refused(tmp_path):
    """By the number, readers make room before they look at a value."""
    columns = {"name": pa.array([f"{n:05}" for n in range(70_001)])}
    options = {"dictionary_pagesize_limit": 1 << 30, "everywhere": True}
    lying(tmp_path, columns, 70_001, (1 << 20) - 1, **options)
    with pytest.raises(RunError, match="a page says to hold more values than there are"):
        profile.table(tmp_path, "kernels")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "lz4"])
def test_what_pages_say_is_what_arrow_and_duckdb_wrote(tmp_path, version, codec):
    """Every page of ours is found: sizes add up to the footer's."""
    import duckdb

    rows = pa.table({"n": range(50_000), "d": [str(n % 7) for n in range(50_000)], "e": [None, 1.5] * 25_000})
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    further = {"data_page_version": version, "data_page_size": 4096, "write_page_index": version == "2.0"}
    pq.write_table(rows, ours, compression=codec, row_group_size=20_000, **further)
    name = "uncompressed" if codec == "none" else codec
    duckdb.execute(f"copy (select * from rows) to '{theirs}' (format parquet, compression {name})")
    for file in (ours, theirs):
        about = pq.read_metadata(file)
        groups = [about.row_group(g) for g in range(about.num_row_groups)]
        chunks = [group.column(c) for group in groups for c in range(3)]
        declared = sum(chunk.total_uncompressed_size for chunk in chunks)
        assert parquet._in_pages(str(file), chunks) == (declared, None)


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 600, b"\x1c" * 600, b"\x19\x00", b"\x15\x00\x00", b"\x15" + b"\xff" * 99]
)
def test_what_is_no_page_is_said(tmp_path, data):
    (tmp_path / "f").write_bytes(data)
    with open(tmp_path / "f", "rb") as f, pytest.raises(ValueError, match="page"):
        list(pages.pages(f.fileno(), 0, 100))


def test_a_large_table_of_few_texts_is_read(tmp_path):
    """What a trace's table is: many rows, long names that many of them share."""
    rows, names = 200_000, [f"void kernel<{n}>({'int, ' * 100})" for n in range(300)]
    codes = np.random.default_rng(0).integers(0, len(names), rows).astype(np.int32)
    starts = np.cumsum(np.random.default_rng(1).integers(1, 1 << 20, rows))
    columns = {"ts_ns": starts, "name": pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names))}
    write(tmp_path, columns)
    assert len(profile.table(tmp_path, "kernels")) == rows


def test_a_table_without_rows_is_read(tmp_path):
    write(tmp_path, {"name": pa.array([], pa.string()), "n": zeros(0)})
    assert len(profile.table(tmp_path, "kernels")) == 0


@pytest.mark.parametrize("cut", [1, 100, -20])
def test_a_damaged_table_is_one_sentence(tmp_path, cut):
    file = write(tmp_path, {"ts_ns": zeros(1000)})
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(RunError, match=r"kernels\.parquet cannot be read"):
        profile.table(tmp_path, "kernels")


def test_csv_cells_are_no_formulas_and_numbers_stay_numbers(tmp_path):
    texts = ["=cmd|' /C calc'!A0", "+1", "-2.5e3", "@SUM(1)", "\tx", "plain", None, "-x"]
    columns = {
        "=head": pa.array(texts),
        "n": pa.array(range(-4, 4)),
        "d": pa.array(texts).dictionary_encode(),
    }
    write(tmp_path, columns)
    lines = b"".join(profile.csv(tmp_path, "kernels")).decode().splitlines()
    assert lines[0].startswith('"\'=head"')
    for line, text in zip(lines[1:], texts, strict=True):
        first, number, second = line.split(",")
        assert first == second and int(number) < 4
        assert first == (
            "" if text is None else f'"{text}"' if text in ("+1", "-2.5e3", "plain") else f'"\'{text}"'
        )
