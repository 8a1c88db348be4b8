"""Every file of a run cut short, with bytes flipped, zeroed, swapped or appended; packed and not."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from make_runs import record

from fusescope.core.errors import RunError
from fusescope.core.records import Record
from fusescope.store import folder, library, profile
from tests.faults.case import TryOne, folders, hold, refused_or_read

TITLE = "Torn and flipped bytes in every file of a run"
LEAST = 2000
SHARE = 1.0
LINES = 12


def sound() -> Path:
    """A finished run with every file that a run has."""
    path = folder.create("bench", {"op": "add"}, title="sound")
    with contextlib.closing(folder.Writer(path)) as writer:
        writer.state("running")
        for n in range(LINES):
            one = Record.from_json(record("add", n, "eager"))
            writer.record(one)
            writer.samples(one.case_key, "eager", "graph", [1.0 + n, 2.0])
        writer.log("a line")
        columns = {"ts_ns": pa.array(np.arange(50)), "name": pa.array([f"k{n % 3}" for n in range(50)])}
        pq.write_table(pa.table(columns), writer.artifact("kernels.parquet"))
        writer.artifact("summary.json").write_text(json.dumps({"rows": {"kernels": 50}}))
        writer.state("done")
    return path


def damage(data: bytes, rng: random.Random) -> bytes:
    """The same bytes with one thing wrong."""
    if not data:
        return rng.randbytes(8)
    at = rng.randrange(len(data))
    end = min(len(data), at + rng.choice((1, 8, 512)))
    return rng.choice(
        (
            lambda: data[:at],
            lambda: data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :],
            lambda: data[:at] + bytes(end - at) + data[end:],
            lambda: data[:at] + data[end:],
            lambda: data[:at] + rng.randbytes(end - at) + data[end:],
            lambda: data + rng.randbytes(rng.choice((1, 40))),
            lambda: data + data[at:],
        )
    )()


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    with folders(at) as home:
        whole = sound()
        kept = at / "kept"
        shutil.copytree(whole, kept)
        packed = at / "packed"
        shutil.copytree(whole, packed)
        for name in ("results.jsonl", "samples.jsonl"):
            (packed / f"{name}.gz").write_bytes(gzip.compress((packed / name).read_bytes(), mtime=0))
            (packed / name).unlink()
        true = {r.case_key: r for r in folder.records(whole)}
        samples = folder.samples(whole)
        other = sound()

        def try_one(seed: int) -> int:
            rng = random.Random(seed)
            source = rng.choice((kept, packed))
            shutil.rmtree(whole, ignore_errors=True)
            shutil.copytree(source, whole)
            files = sorted(f for f in whole.rglob("*") if f.is_file() and f.stat().st_size)
            file = rng.choice(files)
            for _ in range(rng.choice((1, 1, 3))):
                data = file.read_bytes()
                file.write_bytes(damage(data, rng))
            what = f"{file.relative_to(whole)} of a {source.name} run"
            reads = (
                lambda: _about(whole, what),
                lambda: _records(whole, true, what),
                lambda: _samples(whole, samples, what),
                lambda: profile.table(whole, "kernels"),
                lambda: profile.page(whole, "kernels"),
                lambda: profile.summary(whole),
            )
            for read in reads:
                with refused_or_read():
                    read()
            if seed % 10 == 0:
                _listed(home, whole, other, what)
            return len(reads) + (seed % 10 == 0)

        yield try_one


def _about(path: Path, what: str) -> None:
    run = folder.read(path)
    try:
        found = len(folder.records(path))
    except RunError:
        return
    noted = json.loads((path / "run.json").read_bytes()).get("contents")
    whole = found == LINES or run.status != "done" or not noted
    hold(whole, "state", f"{what}: {found} of {LINES} records, yet {run.status}")


def _records(path: Path, true: dict, what: str) -> None:
    records = folder.records(path)
    noted = (json.loads((path / "run.json").read_bytes()).get("contents") or {}).get("results.jsonl")
    for found in records:
        same = found == true.get(found.case_key)
        # Where the end of the run was cut off from run.json, nothing is known of what was measured.
        hold(same or not noted or not _as_noted(path, noted), "state", f"{what}: a changed record was read")


def _as_noted(path: Path, noted: dict) -> bool:
    """Whether the file has the size that the writer noted: then its checksum must have told."""
    plain = path / "results.jsonl"
    return plain.exists() and plain.stat().st_size == noted.get("bytes")


def _samples(path: Path, true: list[dict], what: str) -> None:
    found = folder.samples(path)
    hold(len(found) <= len(true) + LINES, "state", f"{what}: {len(found)} lines of samples")


def _listed(home: Path, broken: Path, other: Path, what: str) -> None:
    runs, total = library.runs()
    ids = {r.id for r in runs} | {i for i, _ in library.broken()}
    hold({broken.name, other.name} <= ids, "lost", f"{what}: listed are {ids} of {total}")
    hold((library.records()["run"] == other.name).sum() == LINES, "lost", f"{what}: another run's records")
