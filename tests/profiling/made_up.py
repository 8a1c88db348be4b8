"""Small traces written out for tests, and tables read back."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq

from fusescope.core import paths
from fusescope.profiling.chrome import importer
from fusescope.profiling.chrome.events import Decoder

DATA = paths.ROOT.parent / "shared" / "data"
H200 = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "warpSize": 32, "numSms": 132}


def x(cat, name, ts, dur, args=None, pid=1, tid=1) -> dict:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "ts": ts,
        "dur": dur,
        "pid": pid,
        "tid": tid,
        "args": args or {},
    }


def op(name, ts, dur, external=None, **args) -> dict:
    return x("cpu_op", name, ts, dur, ({} if external is None else {"External id": external}) | args)


def launch(correlation, ts, dur=2.0, name="cudaLaunchKernel", external=None, tid=1) -> dict:
    args = {"correlation": correlation} | ({} if external is None else {"External id": external})
    return x("cuda_runtime", name, ts, dur, args, tid=tid)


def kernel(
    correlation,
    ts,
    dur,
    name="k",
    external=None,
    grid=(132, 1, 1),
    block=(128, 1, 1),
    registers=32,
    shared=0,
    stream=7,
) -> dict:
    args = {
        "correlation": correlation,
        "device": 0,
        "stream": stream,
        "grid": list(grid),
        "block": list(block),
    }
    args |= {"registers per thread": registers, "shared memory": shared, "est. achieved occupancy %": 0}
    return x(
        "kernel",
        name,
        ts,
        dur,
        args | ({} if external is None else {"External id": external}),
        pid=0,
        tid=stream,
    )


def trace(path: Path, events: list, **metadata) -> Path:
    """Write a trace of torch's form, packed where its name says so."""
    text = json.dumps(
        {
            "schemaVersion": 1,
            "deviceProperties": [H200],
            **metadata,
            "traceEvents": events,
            "traceName": "made up",
        }
    )
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def load(path: Path, out: Path, decoder: Decoder | None = None) -> tuple[dict, dict[str, list[dict]]]:
    """(summary, rows by table) of an import into a folder."""
    out.mkdir(exist_ok=True)
    summary = importer.load(path, lambda name: out / name, decoder=decoder)
    return summary, tables(out)


def tables(out: Path) -> dict[str, list[dict]]:
    return {p.stem: pq.read_table(p).to_pylist() for p in out.glob("*.parquet")}
