"""Runs with profiles, imported from made-up files: what the Profiler page looks at."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import synthetic

sys.path.append(str(Path(__file__).resolve().parents[1] / "profiling"))

import made_up
from made_up import kernel, launch, op, x

from fusescope.profiling import table
from fusescope.profiling.chrome import importer
from fusescope.profiling.nsight import ncu, ncu_source

TRACE, OTHER, NCU = (
    "20261120-120000-trace-aaaaaa",
    "20261120-120200-trace-cccccc",
    "20261120-120100-ncu-bbbbbb",
)
EVIL = "<img src=x onerror=alert(1)>"
CASE = {
    "batch": 1,
    "heads": 2,
    "kv_heads": 2,
    "seq": 64,
    "seq_k": 64,
    "head_dim": 64,
    "mask": "full",
    "bias": "none",
}
SPEC = {"op": "attention", "impl": "v2_blockwise", "case": CASE, "dtype": "float16", "device": "cuda:0"}


def events(scale: float = 1.0, names=("void a::gemm<64>(int)", EVIL)) -> list[dict]:
    """Three steps of two kernels each, launched in a layer; a copy and allocations."""
    found, n = [], 0
    for step in range(3):
        at = 1000.0 * step
        found += [
            x("user_annotation", f"ProfilerStep#{step}", at, 900),
            x("user_annotation", "module: net.layer.0", at + 5, 300),
        ]
        for i, name in enumerate(names):
            n += 1
            begin = at + 10 + 100 * i
            found += [
                op("aten::mm", begin, 40, external=n, **{"Input Dims": [[64, 64]]}),
                launch(n, begin + 5, external=n),
            ]
            found.append(
                kernel(n, begin + 50, 30 * scale * (i + 1), name, external=n, registers=64, shared=16384)
            )
        found.append(
            x(
                "gpu_memcpy",
                "Memcpy HtoD",
                at + 600,
                5,
                {"device": 0, "stream": 7, "bytes": 4096, "correlation": 100 + step},
            )
        )
        found.append(launch(100 + step, at + 590, name="cudaMemcpyAsync"))
        memory = {
            "Addr": 1,
            "Bytes": 4096,
            "Total Allocated": 4096 * (step + 1),
            "Total Reserved": 1 << 20,
            "Device Type": 1,
            "Device Id": 0,
        }
        found.append(
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "ts": at + 20,
                "pid": 1,
                "tid": 1,
                "args": memory,
            }
        )
    return found


def trace(home: Path, run_id: str, spec: dict | None = None, kind: str = "trace", **how) -> Path:
    """A run with the trace of ``events`` and its tables."""
    path = _folder(home, run_id, kind, SPEC if spec is None else spec)
    file = made_up.trace(
        path / "artifacts" / "trace.json.gz", events(**how), baseTimeNanoseconds=1790857026000000000
    )
    importer.load(file, lambda name: path / "artifacts" / name)
    return path


def streams(home: Path, run_id: str) -> Path:
    """A trace of another tool, without launches and grids: of 400 µs, streams 7, 13 and 20 are busy for 260,
    250 and 190, kernels of two run at once for 110, the copy beside kernels all the time."""
    path = _folder(home, run_id, "import", {"file": "foreign.json"})
    spans = [(7, 0, 100), (7, 100, 200), (7, 340, 400), (13, 100, 200), (13, 200, 340), (13, 390, 400)]
    found = [x("kernel", "gemm", b, e - b, {"device": 0, "stream": stream}) for stream, b, e in spans]
    found.append(x("gpu_memcpy", "Memcpy HtoD", 200, 190, {"device": 0, "stream": 20, "bytes": 4096}))
    file = made_up.trace(path / "artifacts" / "trace.json", found)
    importer.load(file, lambda name: path / "artifacts" / name)
    return path


def telemetry(path: Path) -> None:
    """Ten samples of a GPU, throttled in the middle."""
    now = 1790857026000000000 + np.arange(10, dtype=np.int64) * 50_000_000
    reasons = ["power cap" if 3 <= n < 6 else None for n in range(10)]
    columns = {
        "ts_ns": now,
        "sm_mhz": np.full(10, 1980),
        "memory_mhz": np.full(10, 3201),
        "power_w": np.linspace(90, 700, 10),
    }
    columns |= {
        "temperature_c": np.arange(40, 50),
        "gpu_percent": np.full(10, 99.0),
        "memory_used_bytes": np.full(10, 3 << 30),
    }
    table.write(path / "artifacts" / "telemetry.parquet", columns | {"throttled": table.coded(reasons)})
    facts = {
        "source": "nvml",
        "note": None,
        "count": 10,
        "hz": 20.0,
        "throttled": 0.3,
        "reasons": ["power cap"],
    }
    (path / "artifacts" / "telemetry.json").write_text(json.dumps(facts))


def report(home: Path, run_id: str, spec: dict = SPEC) -> Path:
    """A run of Nsight Compute over the two kernels of ``events``, with stall reasons."""
    path = _folder(home, run_id, "ncu", spec | {"calls": 1, "warmup": 2, "metrics": "standard"})
    metrics = {c: raw for c, (raw, _) in ncu.COLUMNS.items()}
    stall = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    values = {
        "duration_ns": 31_000,
        "sm_percent": 20,
        "memory_percent": 75,
        "dram_percent": 70,
        "tensor_percent": 11,
        "read_bytes": 50_000,
        "written_bytes": 16_384,
        "measured_occupancy": 14.5,
        "registers": 64,
        "static_bytes": 0,
        "dynamic_bytes": 16384,
        "waves": 1,
    }
    head = [
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Name",
        "Context",
        "Stream",
        "Block Size",
        "Grid Size",
        "Device",
        "CC",
    ]
    head += [metrics[c] for c in values] + [stall.format("long_scoreboard"), stall.format("wait")]
    units = [""] * 11 + [
        "ns",
        "%",
        "%",
        "%",
        "%",
        "byte",
        "byte",
        "%",
        "register/thread",
        "byte/block",
        "byte/block",
        "",
        "inst",
        "inst",
    ]
    rows = [head, units]
    for n, name in enumerate(("gemm", EVIL)):
        rows.append(
            [
                n,
                1,
                "python",
                "host",
                name,
                1,
                7,
                "(128, 1, 1)",
                "(132, 1, 1)",
                0,
                "9.0",
                *values.values(),
                3.5,
                1.5,
            ]
        )
    file = path / "artifacts" / "ncu.csv"
    file.write_text("\n".join(",".join(f'"{v}"' for v in row) for row in rows) + "\n")
    ncu.load(file, lambda name: path / "artifacts" / name)
    return path


def source_page(home: Path, run_id: str) -> Path:
    """An imported source page: a file of two lines with an instruction each, under a stranger's names."""
    path = _folder(home, run_id, "import", {"file": "page.csv", "form": "ncu-source"})
    cells = '"{}","{}","{}","{}","{}","{}","{}",'
    lines = [
        f'"File Path","/home/{EVIL}/k.cu"',
        f'"Function Name","k<{EVIL}>(int)"',
        cells.format(
            "Line No", "Source", "Address", "Source", "# Samples", "stall_long_sb", "stall_selected"
        ),
        cells.format(12, "  float a = x[i];", "-", "-", 10, 2, 8),
        cells.format("", "", "0x10", "LDG.E R2, [R2.64]", 10, 2, 8),
        cells.format(13, f"  y[i] = a; // {EVIL}", "-", "-", 90, 85, 5),
        cells.format("", "", "0x20", "STG.E [R4.64], R2", 90, 85, 5),
    ]
    file = path / "artifacts" / "ncu-source.csv"
    file.write_text("\n".join(lines) + "\n")
    ncu_source.load(file, lambda name: path / "artifacts" / name)
    return path


def _folder(home: Path, run_id: str, kind: str, spec: dict) -> Path:
    import folders

    return folders.write(home, synthetic.run(run_id, kind=kind, spec=spec), [], samples=False)


def three(profiles: Path) -> Path:
    """A trace with telemetry, a slower one of the same work, and a report of Nsight Compute."""
    path = trace(profiles, TRACE)
    telemetry(path)
    trace(profiles, OTHER, scale=2.0, names=("void a::gemm<128>(int)", "other"))
    report(profiles, NCU)
    return path
