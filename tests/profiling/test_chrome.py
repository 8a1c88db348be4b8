"""Reading traces: any cut, any age, exact times, and one sentence for what is none."""

import gzip
import json
import random
from collections import Counter
from decimal import Decimal

import pytest
import synthetic_trace
from made_up import DATA, kernel, load, op, trace, x

from fusescope.profiling.chrome import exact, importer
from fusescope.profiling.chrome.events import Decoder
from fusescope.profiling.chrome.stream import ChromeTrace

TRACES = sorted((DATA / "traces").glob("*.json.gz"))
needs_data = pytest.mark.skipif(not TRACES, reason=f"no folder of other people's traces at {DATA}")


def independent(path) -> dict:
    """Sums of durations per category with the standard library alone, in exact ns."""
    data = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    events = data["traceEvents"] if isinstance(data, dict) else data
    found: dict = {}
    for e in events:
        if e.get("ph") == "X":
            row = found.setdefault(e.get("cat", ""), {"events": 0, "total_ns": 0})
            row["events"] += 1
            row["total_ns"] += int(Decimal(e["dur"]) * 1000)
    return found


@pytest.mark.sample(2)
@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("file", TRACES, ids=lambda p: p.name.split(".")[0])
def test_totals_equal_an_independent_count(file, tmp_path):
    summary, rows = load(file, tmp_path / "out")
    assert summary["totals"] == independent(file)
    for name in ("kernels", "operators", "launches", "copies", "ranges"):
        assert len(rows[name]) == summary["rows"][name]
    in_tables = Counter()
    for name in ("kernels", "operators", "launches", "copies", "ranges"):
        for row in rows[name]:
            in_tables[row["cat"]] += row["dur_ns"]
    assert in_tables == {cat: t["total_ns"] for cat, t in summary["totals"].items()}


@pytest.mark.long
@needs_data
def test_absolute_times_are_exact(tmp_path):
    """Times of 1.7e15 µs with three decimals do not fit a float: every one is compared with its text."""
    file = DATA / "traces" / "ns_resolution.json.gz"
    _, rows = load(file, tmp_path / "out")
    events = json.loads(gzip.decompress(file.read_bytes()), parse_float=Decimal)["traceEvents"]
    expected = [(int(e["ts"] * 1000), int(e["dur"] * 1000)) for e in events if e.get("cat") == "kernel"]
    assert [(k["ts_ns"], k["dur_ns"]) for k in rows["kernels"]] == expected
    assert any(float(ts) / 1000 != Decimal(ts) / 1000 for ts, _ in expected)


@pytest.mark.parametrize("with_msgspec", [True, False], ids=["msgspec", "json"])
@pytest.mark.parametrize("chunk", [37, 1000, 1 << 20])
def test_wherever_it_is_cut_the_events_are_the_same(chunk, with_msgspec, tmp_path):
    nasty = ['}, {"ph": "X"', "]}", '\\"}],', "ünï←", "a\nb", "}\n,\n{", '[{"name": 1}, {']
    events = [
        op(random.Random(n).choice(nasty), n, 1.5, n, **{"Input Dims": [[n, 2], [], [[3]]]})
        for n in range(60)
    ]
    file = trace(tmp_path / "t.json", events, comment=nasty, baseTimeNanoseconds=10)
    source = ChromeTrace(file, Decoder(with_msgspec), chunk)
    found = [(e.name, ts) for run in source.runs() for e, ts in zip(run.events, run.ts.tolist(), strict=True)]
    assert found == [(e["name"], e["ts"] * 1000) for e in events]
    assert source.metadata["comment"] == nasty and source.metadata["traceName"] == "made up"


@pytest.mark.parametrize("chunk", [101, 5000])
def test_events_full_of_objects_are_cut_between_events_all_the_same(chunk, tmp_path):
    """More places that look like the end of an event than are tried: the events are walked one by one
    then."""
    inner = [{"a": {"b": i}} for i in range(60)]
    file = trace(tmp_path / "t.json", [op("e", n, 1, n, stack=inner) for n in range(20)], tail=inner)
    source = ChromeTrace(file, chunk=chunk)
    runs = [len(run) for run in source.runs()]
    assert sum(runs) == 20 and source.metadata["tail"] == inner and (len(runs) > 3 or chunk > 1000)


def test_with_and_without_msgspec_the_tables_are_the_same(tmp_path):
    file = tmp_path / "t.json.gz"
    totals = synthetic_trace.write(file, 2800)
    fast, plain = (
        load(file, tmp_path / "a", Decoder()),
        load(file, tmp_path / "b", Decoder(use_msgspec=False)),
    )
    assert fast[0]["totals"] == plain[0]["totals"] == dict(sorted(totals.items()))
    for name, rows in fast[1].items():
        if name == "operators":  # the text of the shapes is that of the file, or json's own
            strip = [{k: v.replace(" ", "") if isinstance(v, str) else v for k, v in r.items()} for r in rows]
            assert strip == [
                {k: v.replace(" ", "") if isinstance(v, str) else v for k, v in r.items()}
                for r in plain[1][name]
            ]
        else:
            assert rows == plain[1][name], name


def test_older_and_other_writers(tmp_path):
    events = [
        {"ph": "X", "name": "aten::add", "ts": 1, "dur": 2, "pid": "CPU functions", "tid": 0, "args": {}},
        {"ph": "X", "name": "k", "ts": 2.5, "dur": 0.25, "pid": "CUDA functions", "tid": "stream 7"},
        x("Kernel", "old", 3, 1),
        x("Operator", "op", 2, 4),
        x("Runtime", "cudaLaunchKernel", 2, 1),
        x("Memcpy", "Memcpy HtoD", 4, 1),
        {"ph": "B", "cat": "cpu_op", "name": "outer", "ts": 10, "pid": 1, "tid": 1},
        {"ph": "B", "cat": "cpu_op", "name": "inner", "ts": 11, "pid": 1, "tid": 1},
        {"ph": "E", "ts": 12.125, "pid": 1, "tid": 1},
        {"ph": "E", "ts": 20, "pid": 1, "tid": 1},
        {"ph": "E", "ts": 21, "pid": 1, "tid": 1},
        {"ph": "C", "name": "power", "ts": 5, "pid": 0, "args": {"watts": 300.5, "note": "text"}},
        {
            "ph": "i",
            "name": "[memory]",
            "ts": 6,
            "pid": 1,
            "tid": 1,
            "args": {"Bytes": -512, "Addr": 7, "Total Allocated": 1024},
        },
        {"ph": "X", "name": "no time", "pid": 1, "tid": 1},
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
    ]
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(events))
    summary, rows = load(bare, tmp_path / "out")
    assert [k["name"] for k in rows["kernels"]] == ["k", "old"] and rows["kernels"][0]["tid"] == "stream 7"
    assert {o["name"]: o["dur_ns"] for o in rows["operators"]} == {
        "aten::add": 2000,
        "op": 4000,
        "outer": 10000,
        "inner": 1125,
    }
    assert rows["copies"][0]["kind"] == "HtoD"
    assert rows["counters"] == [{"ts_ns": 5000, "name": "power", "series": "watts", "value": 300.5}]
    assert rows["memory"][0]["bytes"] == -512 and rows["memory"][0]["reserved"] is None
    assert any("2 events have no time, no end" in n for n in summary["notes"])
    assert (
        any("does not say which GPU" in n for n in summary["notes"]) is False
    )  # no launch is complete enough to ask
    unclosed = tmp_path / "unclosed.json"
    unclosed.write_text(bare.read_text()[:-1] + ",")
    again, _ = load(unclosed, tmp_path / "again")
    assert again["totals"] == summary["totals"] and any("is not closed" in n for n in again["notes"])


def test_numbers_that_are_no_json_are_missing(tmp_path):
    file = tmp_path / "t.json"
    text = json.dumps(
        {"traceEvents": [kernel(1, 2, 3), x("gpu_memcpy", "Memcpy HtoD", 1, 0, {"bandwidth": "B"})]}
    )
    file.write_text(text.replace('"B"', "inf"))
    assert load(file, tmp_path / "out")[0]["rows"]["copies"] == 1


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (1712195495519689, 1712195495519689000),
        ("1712195495519689.047", 1712195495519689047),
        (4311855329929.744, 4311855329929744),
        (4401234567890.123, 4401234567890123),  # times 1000 it is nearer to half a ns than to its own
        (-4500000000000.999, -4500000000000999),
        (Decimal("0.0005"), 0),
        ("1e3", 1000000),
        (-1.5, -1500),
        ("-0.5", -500),
        ("nothing", None),
        (None, None),
        (float("nan"), None),
        ("1e999999999", None),
    ],
)
def test_microseconds_to_nanoseconds(value, ns):
    if value != value:
        assert list(exact.column([value], absent=-1)[0]) == [-1]
    else:
        assert exact.nanoseconds(value) == ns


def test_a_column_of_times_is_exact_to_the_ns_wherever_floats_can_be():
    """Up to 2^43 µs; the worst lie between 2^42 µs and 2^52 ns, days 51 and 52 of a trace's base time."""
    numbers = random.Random(3)
    ns = [
        numbers.randrange(low, high)
        for low, high in ((0, 10**9), (4398 * 10**12, 4504 * 10**12), (0, 8796 * 10**12))
        for _ in range(2000)
    ]
    found, lossy = exact.column([float(f"{n // 1000}.{n % 1000:03d}") for n in ns] + [None], absent=-1)
    assert found.tolist() == [*ns, -1] and not lossy
    assert exact.column([1712195495519689.5], absent=-1)[1]


WHOLE = json.dumps(
    {"schemaVersion": 1, "traceEvents": [op("a", n, 1) for n in range(50)], "traceName": "t"}
).encode()
BROKEN = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\n", "is empty"),
    "text": (b"hello", "is no JSON: a trace begins with"),
    "binary": (bytes(range(128, 256)) * 20, "is no JSON"),
    "number": (b"[1, 2, 3]", "malformed"),
    "no events": (b'{"schemaVersion": 1}', "holds no list of events named traceEvents"),
    "events no list": (b'{"traceEvents": {"a": 1}}', "traceEvents is a list of events, not dict"),
    "nothing in it": (b'{"traceEvents": []}', "no event that lasts"),
    "cut in an event": (WHOLE[: len(WHOLE) // 2], "truncated or no valid JSON"),
    "cut before the events": (WHOLE[:12], "truncated before its events"),
    "cut at the end": (WHOLE[:-3], "truncated or no valid JSON"),
    "two traces": (WHOLE + WHOLE, "truncated or no valid JSON"),
    "gz cut": (gzip.compress(WHOLE)[:-20], "the compressed file is truncated"),
    "gz damaged": (gzip.compress(WHOLE)[:15] + b"XXXX" + gzip.compress(WHOLE)[19:], "damaged"),
    "deep head": (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b', "traceEvents": []}', "nested too deeply"),
    "deep event": (
        b'{"traceEvents": [{"ph": "X", "args": {"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}}]}",
        "nested too deeply",
    ),
    "base time": (
        WHOLE.replace(b'"schemaVersion": 1', b'"baseTimeNanoseconds": "x"'),
        "baseTimeNanoseconds is a whole number",
    ),
    "huge time": (b'[{"ph": "X", "name": "a", "ts": 1e30, "dur": 1}]', "out of range"),
    "args no object": (b'[{"ph": "X", "name": "a", "ts": 1, "dur": 1, "args": "x"}]', "malformed"),
}


@pytest.mark.parametrize("with_msgspec", [True, False], ids=["msgspec", "json"])
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_trace_gets_one_sentence(name, with_msgspec, tmp_path):
    content, says = BROKEN[name]
    file = tmp_path / "theirs.json"
    file.write_bytes(content)
    with pytest.raises(ValueError) as error:
        importer.load(file, lambda n: tmp_path / n, decoder=Decoder(with_msgspec))
    text = str(error.value)
    assert says in text and text.startswith("theirs.json") and "\n" not in text and len(text) < 500, text
    assert list(tmp_path.glob("*.parquet")) == []


def test_another_schema_version_is_said(tmp_path):
    file = trace(tmp_path / "t.json", [op("a", 1, 1)], schemaVersion=9)
    assert any("schema version '9'" in n for n in load(file, tmp_path / "out")[0]["notes"])


def test_odd_values_are_missing_and_harm_nothing(tmp_path):
    odd = [[1, 2], {"a": 1}, "0x1f", "text" * 9, 1 << 70, -5, 2.0, 2.5, True, None]
    events = [
        x(
            "kernel",
            f"k{i}",
            i,
            1,
            {"stream": v, "grid": v, "correlation": v, "registers per thread": v, "bytes": v},
        )
        for i, v in enumerate(odd)
    ]
    events += [
        x("kernel", "shape", 99, 1, {"grid": [1, "2", 3], "block": [1, -1, 1], "shared memory": 1 << 63})
    ]
    for use in (True, False):
        _, rows = load(trace(tmp_path / "t.json", events), tmp_path / f"out{use}", Decoder(use))
        assert [k["stream"] for k in rows["kernels"]] == [None, None, 31, None, None, -5, 2, None, None, 1, 1]
        assert {k["grid_x"] for k in rows["kernels"]} == {None} and rows["kernels"][-1][
            "shared_bytes"
        ] is None


def test_events_without_process_or_with_broken_unicode(tmp_path):
    events = [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 1, "pid": None}, kernel(1, 2, 1)]
    for use in (True, False):
        _, rows = load(trace(tmp_path / "t.json", events), tmp_path / f"out{use}", Decoder(use))
        assert [k["pid"] for k in rows["kernels"]] == [None, "0"]
    (tmp_path / "u.json").write_text('[{"ph": "X", "name": "\\ud800", "ts": 1, "dur": 1}]')
    for use, name in ((True, "\ufffd"), (False, "?")):
        assert load(tmp_path / "u.json", tmp_path / f"u{use}", Decoder(use))[1]["ranges"][0]["name"] == name
    (tmp_path / "v.json").write_bytes(b'[{"ph": "X", "name": "\xff\xfe", "ts": 1, "dur": 1}]')
    for use in (True, False):
        assert (
            load(tmp_path / "v.json", tmp_path / f"v{use}", Decoder(use))[1]["ranges"][0]["name"]
            == "\ufffd\ufffd"
        )


@pytest.mark.long
def test_equal_correlations_and_different_launches_by_the_thousand_cost_no_square_of_time(tmp_path):
    many = 30_000  # a square of it would take minutes
    events = [kernel(1, 2 * n + 1, 1) for n in range(many)]
    events += [x("cuda_runtime", "cudaLaunchKernel", 2 * n, 1, {"correlation": 1}, 5, 5) for n in range(many)]
    for n, e in enumerate(events[:many]):
        e["args"] |= {"grid": [n + 1, 1, 1], "shared memory": n, "registers per thread": 32}
    _, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    assert [k["launch"] for k in rows["kernels"]] == list(range(many))  # the last that began before
    assert all(k["occupancy"] for k in rows["kernels"])


def test_names_that_are_html_stay_text(tmp_path):
    name = "<img src=x onerror=alert(1)>&<script>"
    _, rows = load(trace(tmp_path / "t.json", [kernel(1, 1, 1, name=name), op(name, 0, 9)]), tmp_path / "out")
    assert rows["kernel_summary"][0]["name"] == name and rows["operator_summary"][0]["name"] == name


def test_progress_rises_and_may_stop_it(tmp_path):
    file = tmp_path / "t.json"
    synthetic_trace.write(file, 14_000)
    seen = []
    importer.load(file, lambda n: tmp_path / n, lambda share, text: seen.append(share))
    assert seen == sorted(seen) and seen[-1] < 1 and len(seen) > 5

    class Stop(Exception):
        pass

    def stop(share, text):
        raise Stop

    with pytest.raises(Stop):
        importer.load(file, lambda n: tmp_path / "no" / n, stop)
