"""Records and samples made from arithmetic, for tests of charts: shapes and states of real ones, no claim of
measurement."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from fusescope.core.records import Accuracy, Rate, Record, Resources, Run, Speedup, Time, Times

IMPLS = {"eager": 1.0, "sdpa": 1.9, "flex": 1.4, "v1_rowwise": 0.8, "v2_blockwise": 2.6}


def time(ms: float, n: int = 200, converged: bool = True) -> Time:
    return Time(ms, ms * 0.99, ms * 1.012, n, converged)


def ok(
    impl: str, ms: float, base: float, case: dict, device: str = "cuda:0", source_hash: str | None = None
) -> Record:
    gain = base / ms
    return Record(
        "attention",
        impl,
        case,
        "float16",
        device,
        "ok",
        accuracy=Accuracy(2e-4, 3e-3, 0.9999998, "float64"),
        time_ms=Times(5.0, time(ms + 0.008), time(ms * 1.2 + 0.008), time(ms), time(ms * 1.2)),
        speedup=Speedup("graph", gain, gain * 0.985, gain * 1.015),
        tflops=Rate(300 / ms * 1e-3, 340 / ms * 1e-3),
        gbps=40 / ms,
        resources=Resources(96, 49152, 0, 0.375),
        backend=impl,
        source_hash=source_hash,
    )


def wrong(impl: str, case: dict, device: str = "cuda:0") -> Record:
    return Record(
        "attention",
        impl,
        case,
        "float16",
        device,
        "wrong",
        reason="largest absolute error 0.31 is beyond 0.002",
        accuracy=Accuracy(0.31, 12.0, 0.91, "float64"),
    )


def failed(
    impl: str, case: dict, status: str = "unsupported", reason: str = "head_dim 72 is not taken"
) -> Record:
    return Record("attention", impl, case, "float16", "cuda:0", status, reason=reason)


def case(seq: int = 512, batch: int = 1) -> dict:
    return {
        "batch": batch,
        "seq": seq,
        "seq_k": seq,
        "heads": 12,
        "kv_heads": 12,
        "head_dim": 64,
        "mask": "bigbird",
        "bias": "none",
    }


def point(seq: int = 512) -> list[Record]:
    """One case: five that ran, one wrong, one unsupported, one out of memory."""
    base = 0.05 * (seq / 512) ** 1.7
    records = [ok(i, base / f ** math.log2(seq / 256), base, case(seq)) for i, f in IMPLS.items()]
    oom = failed("sdpa_math", case(seq), "oom", "tried to allocate 2.0 GiB")
    return [*records, wrong("v3_broken", case(seq)), failed("v4_hopper", case(seq)), oom]


def sweep(seqs=(512, 1024, 2048, 4096)) -> list[Record]:
    return [r for s in seqs for r in point(s)]


def samples(records: list[Record], n: int = 200) -> list[dict]:
    draw = random.Random(0)
    lines = []
    for r in records:
        for mode in ("eager", "eager_cold", "graph", "graph_cold"):
            t = r.time_of(mode)
            if t:
                ms = [t.median * draw.lognormvariate(0.05 if i % 3 else 0.12, 0.02) for i in range(n)]
                lines.append({"case_key": r.case_key, "impl": r.impl, "mode": mode, "ms": ms, "state": None})
    return lines


SPEC = {
    "op": "attention",
    "impls": list(IMPLS),
    "cases": [case()],
    "baseline": "eager",
    "dtype": "float16",
    "device": "cuda:0",
    "cache": "both",
}


def run(run_id: str = "20261120-104200-bench-abc123", **changes) -> Run:
    values = dict(
        id=run_id,
        kind="bench",
        status="done",
        created=1.79e9,
        started=1.79e9,
        finished=1.79e9 + 40,
        spec=SPEC,
        environment={
            "device_name": "NVIDIA H200",
            "device": "cuda:0",
            "torch": "2.11.0+cu130",
            "driver": "580.95",
            "ceilings": CEILINGS,
        },
    )
    return Run(**(values | changes))


CEILINGS = {
    "copy_gbps": 4300.0,
    "l2_gbps": 9000.0,
    "matrix_tflops": {"float16": 795.0, "float32": 380.0},
    "vector_tflops": {"float16": 120.0, "float32": 60.0},
}


def two_masks() -> list[Record]:
    """Two masks; one implementation failed on the second."""
    other = {**case(), "mask": "causal"}
    again = [replace(r, case=other) for r in point() if r.impl != "flex"]
    return [*point(), *again, failed("flex", other)]
