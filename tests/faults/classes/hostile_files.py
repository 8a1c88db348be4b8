"""Files of strangers: traces, Nsight tables, snapshots, masks, checkpoints, token files; damaged sound ones,
made-up ones, and those that would run code. Through the importers, and by the command line."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pickle
import random
import sqlite3
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from made_up import kernel, launch, op, x
from test_ncu import LONG, long
from test_nsys import GPU, ONE_KERNEL, export

from fusescope import masks
from fusescope.models.scores import input as tokens
from fusescope.profiling import forms, importing
from fusescope.store import folder, library
from tests.faults.case import TryOne, folders, hold, one_sentence, refused_or_read
from tests.faults.classes.json_types import ANY, drawn
from tests.faults.classes.torn_bytes import damage
from tests.faults.commands import call
from tests.faults.processes import end_warm_parents

TITLE = "Hostile traces, tables, snapshots, arrays, checkpoints and texts"
LEAST = 500
SHARE = 1.5
_DRAWN = 10

EVENTS = [
    x("user_annotation", "ProfilerStep#1", 0, 90),
    op("aten::mm", 1, 20, 1),
    launch(1, 5, external=1),
    kernel(1, 10, 8, "gemm<64>(float*)", external=1),
    {"ph": "C", "name": "power", "ts": 3, "pid": 0, "args": {"watts": 5}},
]


class _Runs:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def sound(at: Path) -> dict[str, bytes]:
    """One good file of each form."""
    export(at / "sound.sqlite", rows=[ONE_KERNEL, GPU])
    history = [{"action": "alloc", "size": 8, "addr": 7, "stream": 0, "time_us": 2}]
    array = io.BytesIO()
    np.save(array, np.eye(8, dtype=bool))
    trace = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}).encode()
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}).encode()
    return {
        "trace.json": trace,
        "trace.json.gz": gzip.compress(trace),
        "nsys.sqlite": (at / "sound.sqlite").read_bytes(),
        "ncu.csv": (LONG + long("Occupancy", "Achieved Occupancy", "%", "50")).encode(),
        "snapshot.pickle": pickle.dumps({"segments": [], "device_traces": [history]}),
        "mask.npy": array.getvalue(),
        "model.safetensors": struct.pack("<Q", len(header)) + header + bytes(16),
        "tokens.txt": b"1 2 3\n4 5 6\n",
    }


def made_up(mark: Path) -> dict[str, bytes]:
    """Files made to hurt: the set that the command line is given one by one."""
    objects = io.BytesIO()
    np.save(objects, np.array([_Runs(mark)], dtype=object), allow_pickle=True)
    found = {
        "empty.json": b"",
        "nul.json": bytes(1000),
        "page.json": b"<html>not found</html>",
        "deep.json": b"[" * 100_000,
        "deep2.json": b'{"traceEvents":' + b"[" * 5000 + b"]" * 5000 + b"}",
        "bomb.json.gz": gzip.compress(b" " * (64 << 20)),
        "cut.json.gz": gzip.compress(json.dumps(EVENTS * 50).encode())[:-20],
        "no-gz.json.gz": b"\x1f\x8b" + os.urandom(50),
        "digits.json": b'[{"ph":"X","ts":' + b"9" * 5000 + b"}]",
        "script.nsys-rep": b"x" * 50,
        "report.ncu-rep": b"NVR\0" + b"x" * 200,
        "archive.zip": _zip({"../../escaped": b"x"}),
        "code.pickle": pickle.dumps({"segments": [_Runs(mark)]}),
        "code2.pickle": b"\x80\x02cposix\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR.",
        "loop.pickle": b"\x80\x04]\x94h\x00a.",
        "memo.pickle": b"\x80\x04" + b"]" * 1000 + b"q",
        "big.pickle": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b".",
        "quotes.csv": LONG.encode() + b'"' * 5000,
        "wide.csv": b'"Kernel Name"' + b",x" * 100_000,
        "sqlite.sqlite": b"SQLite format 3\0" + os.urandom(4000),
        "objects.npy": objects.getvalue(),
    }
    wrong = ("NaN", "Infinity", "-1", "1e400", '"text"', "null", "[]", "{}", "true", str(10**30))
    for n, value in enumerate(wrong):
        for key in ("ts", "dur", "pid", "args"):
            event = '{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"pid":0,"tid":1,"args":{}}'
            default = {"ts": '"ts":1,', "dur": '"dur":1,', "pid": '"pid":0,', "args": '"args":{}'}[key]
            changed = event.replace(
                default, default.partition(":")[0] + ":" + value + default[len(default.rstrip(",")) :]
            )
            found[f"event-{key}-{n}.json"] = f'{{"traceEvents":[{changed}]}}'.encode()
    return found


def _zip(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    with folders(at, OMP_NUM_THREADS="1"):
        mark = at / "executed"
        good, bad = sound(at), made_up(mark)
        views = at / "views.sqlite"
        with contextlib.closing(sqlite3.connect(views)) as db:
            db.executescript("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT load_extension('x') AS start")
        bad["views.sqlite"] = views.read_bytes()
        names = sorted(bad)

        def try_one(seed: int) -> int:
            rng = random.Random(seed)
            if seed % 3 == 0:
                count = _by_command(at, names[seed // 3 % len(names)], bad)
            elif seed % 3 == 1:
                count = _drawn(seed, at)
            else:
                name = rng.choice(sorted(good))
                data = good[name]
                for _ in range(rng.choice((1, 2, 5))):
                    data = damage(data, rng)
                _read(at / name, data, at)
                count = 1
            hold(not mark.exists(), "code", f"a file ran code ({seed})")
            hold(not (at.parent / "escaped").exists(), "outside", f"a file was written outside ({seed})")
            return count

        try:
            yield try_one
        finally:
            end_warm_parents(at / "runtime")


def _read(file: Path, data: bytes, at: Path) -> None:
    """As the job reads it, in this process."""
    file.write_bytes(data)
    with refused_or_read():
        _reader(file.name)(file, at)


def _reader(name: str) -> Callable[[Path, Path], object]:
    if name.endswith(".npy"):
        return lambda file, at: masks.parse(f"file:{file}").dense(8, 8)
    if name.endswith(".txt"):
        return lambda file, at: tokens.tokens(str(file))
    if name.endswith(".safetensors"):
        return _checkpoint
    return _profile


def _profile(file: Path, at: Path) -> None:
    out = at / "out"
    out.mkdir(exist_ok=True)
    importing.load(file, forms.detect(file), lambda name: out / name, lambda share, text: None)


def _checkpoint(file: Path, at: Path) -> None:
    from fusescope import models
    from fusescope.models.describe import checkpoint

    home = at / "checkpoint"
    home.mkdir(exist_ok=True)
    (home / "config.json").write_text('{"model_type": "bert"}')
    (home / "model.safetensors").write_bytes(file.read_bytes())
    config = models.config("bert-base", models.validate("bert-base", {}), None)
    checkpoint.examine("bert-base", config, str(home))


def _by_command(at: Path, name: str, bad: dict[str, bytes]) -> int:
    """fusescope import FILE, or the verb that takes such a file."""
    file = at / name
    file.write_bytes(bad[name])
    before = {p.id for p in library.runs()[0]}
    if name.endswith(".npy"):
        code, out, _ = call("mask", f"file:{file}", "--seq", "8")
        hold(code == 2, "code", f"an array of objects was taken: {code} {out}")
        return 1
    code, out, _ = call("import", file, "--json")
    hold(code in (0, 1, 2), "words", f"{name}: exit code {code}")
    if code == 2:
        after = {p.id for p in library.runs()[0]}
        hold(after == before, "state", f"{name}: refused, yet a run is left: {after - before}")
    elif code == 1:
        one_sentence(json.loads(out)["imported"][0]["reason"])
    else:
        path = library.find(json.loads(out)["imported"][0]["run"])
        hold(folder.read(path).status == "done", "state", f"{name}: {folder.read(path).status}")
    return 1


def _drawn(seed: int, at: Path) -> int:
    """Traces whose events have values that hypothesis drew."""
    keys = st.sampled_from(["ph", "cat", "name", "ts", "dur", "pid", "tid", "args", "id", "bp", "s"])
    inner = st.dictionaries(
        st.sampled_from(["External id", "correlation", "grid", "block", "stream", "device", "Input Dims"]),
        ANY,
    )
    changes = st.lists(st.tuples(st.integers(0, 99), keys, ANY | inner), max_size=4)

    @drawn(seed, _DRAWN)
    @given(changes, st.booleans())
    def each(changed, bare):
        events = [dict(e) for e in EVENTS]
        for n, key, value in changed:
            events[n % len(events)][key] = value
        _read(at / "drawn.json", json.dumps(events if bare else {"traceEvents": events}).encode(), at)

    each()
    return _DRAWN
