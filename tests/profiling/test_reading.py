"""A trace read by several processes: the same tables as by one, or the same sentence."""

import gzip
import json
import random
import subprocess

import pytest
import synthetic_trace
from made_up import tables, trace, x

from fusescope.profiling.chrome import importer, parallel

pytestmark = pytest.mark.slow

EVENTS = 300  # of each kind: 140 kB for each of three processes; files of any size are cut by their bytes


def load(file, out, portions):
    out.mkdir()
    return importer.load(file, lambda name: out / name, portions=portions), tables(out)


def mixed(count: int) -> list[dict]:
    """Events of every kind, with names that look like the end of one, and pairs and lanes that reach over any
    cut."""
    numbers = random.Random(5)
    nasty = ['}, {"ph": "X"', "]}", '\\"}],', "ünï←", "}\n,\n{", '[{"name": 1}, {', "plain"]
    events = [
        {
            "ph": "B",
            "cat": "cpu_op",
            "name": "outermost",
            "ts": 0.5,
            "pid": 1,
            "tid": 9,
            "args": {"Input Dims": [[1, 2]]},
        }
    ]
    for n in range(count):
        name = numbers.choice(nasty)
        events.append(
            x(
                "cpu_op",
                name,
                n,
                1.5,
                {"External id": n, "Input Dims": [[n, 2], [], [[3]]], "padding": "x" * 500},
            )
        )
        events.append(
            x(
                "kernel",
                name,
                n + 0.25,
                0.001 * n,
                {"correlation": n, "device": 0, "grid": [n + 1, 1, 1]},
                pid=0,
                tid=f"s{n % 3}",
            )
        )
        events.append({"ph": "C", "name": "power", "ts": n, "pid": 0, "args": {"watts": n}})
        events.append({"ph": "i", "name": "[memory]", "ts": n, "pid": 1, "args": {"Bytes": n, "Addr": 7}})
        events.append({"ph": "B", "cat": None, "name": name, "ts": n, "pid": "CPU functions", "tid": n % 2})
        events.append({"ph": "E", "ts": n + 0.5, "pid": "CPU functions", "tid": n % 2})
    return [*events, {"ph": "E", "ts": count, "pid": 1, "tid": 9}]


@pytest.mark.sample(1)
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
@pytest.mark.parametrize("bare", [False, True], ids=["object", "bare list"])
def test_several_processes_find_what_one_finds(suffix, bare, tmp_path, monkeypatch):
    file = tmp_path / f"t{suffix}"
    if bare:
        text = json.dumps(mixed(EVENTS)).encode()
        file.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    else:
        trace(file, mixed(EVENTS), baseTimeNanoseconds=10, tail=[{"ph": 1}, {"a": 2}])
    alone, rows = load(file, tmp_path / "alone", 1)
    monkeypatch.setattr(parallel.Collector, "packed", None)  # of this process: only helpers may pack
    together, same_rows = load(file, tmp_path / "together", 3)
    assert len(parallel._places(file, 3)) == 2 and together == alone
    assert {name for name, found in rows.items() if found} >= {"kernels", "operators", "memory", "counters"}
    assert rows == same_rows


def test_what_is_read_by_portions_is_not_read_again(tmp_path, monkeypatch):
    """So that the comparison above is one of portions: a file that does not allow them is read as a whole."""
    kind, made = parallel.Collector, []
    monkeypatch.setattr(parallel, "Collector", lambda: made.append(kind()) or made[-1])
    file = tmp_path / "t.json"
    totals = synthetic_trace.write(file, 14_000)
    assert importer.load(file, lambda n: tmp_path / n, portions=3)["totals"] == dict(sorted(totals.items()))
    assert len(made) == 1


def _broken() -> dict[str, bytes]:
    whole = json.dumps({"traceEvents": mixed(EVENTS)}).encode()
    middle = whole.index(b'"ph"', len(whole) * 2 // 3)
    return {
        "cut": whole[: len(whole) * 2 // 3],
        "broken in the second half": whole[:middle] + b"?" + whole[middle:],
        "gz cut": gzip.compress(whole)[:-2000],
        "gz that says another size": gzip.compress(whole[:-2])[:-4] + (1 << 30).to_bytes(4, "little"),
        "no event looks like one": json.dumps(
            {"traceEvents": [{"a": [{"b": n}] * 9} for n in range(8_000)]}
        ).encode(),
        "out of range": whole.replace(b'"ts": 280,', b'"ts": 1e30,'),
    }


@pytest.mark.sample(1, "no event looks like one")
@pytest.mark.parametrize("name", _broken())
def test_a_broken_file_gets_the_sentence_of_one_process(name, tmp_path):
    file = tmp_path / "theirs.json"
    file.write_bytes(_broken()[name])
    said = []
    for portions in (1, 3):
        with pytest.raises(ValueError) as error:
            load(file, tmp_path / f"out{portions}", portions)
        said.append(str(error.value))
    assert said[0] == said[1] and said[0].startswith("theirs.json")


def test_who_stops_it_stops_the_helpers(tmp_path, monkeypatch):
    class Stop(Exception):
        pass

    started = []

    class Popen(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            started.append(self)

    def stop(share, text):
        raise Stop

    monkeypatch.setattr(subprocess, "Popen", Popen)
    file = tmp_path / "t.json"
    synthetic_trace.write(file, 14_000)
    with pytest.raises(Stop):
        importer.load(file, lambda n: tmp_path / n, stop, portions=3)
    assert len(started) == 2 and all(p.returncode is not None for p in started)
