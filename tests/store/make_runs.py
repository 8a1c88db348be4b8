"""Makes many run folders quickly, for tests and for measuring the library.

python tests/store/make_runs.py FOLDER 10000 100     makes them (where FOLDER has none yet) and says how long
                                                     queries take
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

OPS = ("add", "gemm", "softmax", "attention")
IMPLS = ("eager", "v1_rows", "v2_tiles", "sdpa", "flex")


def record(op: str, n: int, impl: str, status: str = "ok") -> dict:
    """A record as the worker writes it."""
    m = 1.0 + n % 7
    t = {"median": m, "low": 0.98 * m, "high": 1.02 * m, "n": 50, "converged": True}
    ok = status == "ok"
    return {
        "op": op,
        "impl": impl,
        "case": {"n": n, "heads": 12, "mask": "bigbird:window=64,seed=1"},
        "dtype": "float16",
        "device": "cuda:0",
        "status": status,
        "reason": None if ok else "planted",
        "accuracy": {"max_abs": 1e-4, "max_rel": 2e-4, "cosine": 1.0, "reference": "float64"},
        "time_ms": {"first": 12.0, "eager": t, "eager_cold": t, "graph": t, "graph_cold": t} if ok else None,
        "speedup": {"of": "graph", "median": 1.2, "low": 1.1, "high": 1.3, "verdict": "faster"}
        if ok
        else None,
        "tflops": {"effective": 10.0, "executed": 12.0} if ok else None,
        "gbps": 100.0 if ok else None,
        "throttled": False,
        "resources": {"registers": 64, "shared": 49152, "spills": 0, "occupancy": 0.5},
        "backend": None,
        "source_hash": f"{n % 5:016x}",
    }


def make(home: Path, runs: int, records: int) -> None:
    """``runs`` finished bench runs with ``records`` records each."""
    for i in range(runs):
        op = OPS[i % len(OPS)]
        run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(1.7e9 + i))}-bench-{i:06x}"
        folder = home / run_id
        folder.mkdir(parents=True)
        impls = [IMPLS[k % len(IMPLS)] for k in range(records)]
        spec = {
            "op": op,
            "impls": sorted(set(impls)),
            "cases": [],
            "baseline": "eager",
            "dtype": "float16",
            "device": "cuda:0",
        }
        run = {
            "schema": 1,
            "id": run_id,
            "kind": "bench",
            "spec": spec,
            "status": "done" if i % 10 else "failed",
            "reason": None if i % 10 else "planted",
            "created": 1.7e9 + i,
            "started": 1.7e9 + i,
            "finished": 1.7e9 + i + 9,
            "progress": {
                "done": records,
                "total": records,
                "message": "",
                "eta_s": None,
                "updated": 1.7e9 + i,
            },
            "environment": {
                "device_name": ("NVIDIA H200", "NVIDIA GeForce RTX 3090")[i % 2],
                "torch": "2.11.0",
                "driver": "580.1",
            },
        }
        (folder / "run.json").write_text(json.dumps(run))
        (folder / "notes.json").write_text(
            json.dumps({"title": f"sweep {i}", "tags": [f"t{i % 3}"], "notes": ""})
        )
        with open(folder / "results.jsonl", "w") as f:
            for k, impl in enumerate(impls):
                f.write(json.dumps(record(op, k, impl, "ok" if k % 20 else "wrong")) + "\n")


def measure(home: Path) -> None:
    """Print how long the library takes over the runs in a folder, with and without its index."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    os.environ["FUSESCOPE_PROFILES"] = str(home)
    from fusescope.store import library

    def say(what: str, query) -> None:
        begin = time.perf_counter()
        found = query()
        count = found[1] if isinstance(found, tuple) else len(found)
        print(f"{time.perf_counter() - begin:7.3f} s  {what}: {count}")

    with library.database.connect():  # importing duckdb is no part of a query
        pass
    shutil.rmtree(home / ".index", ignore_errors=True)
    say("first listing, no index", library.runs)
    say("listing", library.runs)
    say("filtering runs", lambda: library.runs(op="gemm", status="done", text="h200"))
    say("first look at records, no index", lambda: library.records(op="add", impl="flex"))
    say("filtering records", lambda: library.records(op="softmax", impl="sdpa"))
    say(
        "filtering records by device",
        lambda: library.records(op="gemm", device_name="NVIDIA H200", impl="sdpa"),
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if not folder.exists():
        make(folder, int(sys.argv[2]), int(sys.argv[3]))
    measure(folder)
