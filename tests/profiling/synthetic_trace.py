"""A made-up torch trace of any size, written as torch.profiler writes: layers of operators, launches,
kernels, flow arrows.

python tests/profiling/synthetic_trace.py FILE EVENTS        4,000,000 events make about 1 GB
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

_HEAD = """
{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320,
      "computeMajor": 9, "computeMinor": 0, "warpSize": 32, "numSms": 132
    }
  ],
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
"""
_KERNELS = [
    f"void at::native::vectorized_elementwise_kernel<{n}, at::native::CUDAFunctor_add<c10::Half>>(int, {n})"
    for n in range(40)
]
_PER_UNIT = 14  # events of one operator with what it launches


def write(path: Path, events: int, layers: int = 24) -> dict[str, dict]:
    """Write about that many events and give the exact totals: {category: {"events", "total_ns"}}."""
    opener = gzip.open if path.name.endswith(".gz") else open
    totals: dict[str, dict] = {}
    with opener(path, "wt") as f:
        f.write(_HEAD)
        units, block, ts, written = max(1, events // _PER_UNIT), [], 4_311_855_329_929_000, 0
        for unit in range(units):
            rows, ts = _unit(unit, ts, layers, totals)
            block += rows
            written += len(rows)
            if len(block) > 20_000 or unit == units - 1:
                f.write(",\n".join(block) + (",\n" if unit < units - 1 else "\n"))
                block = []
        f.write('  ],\n  "traceName": "synthetic.json"\n}\n')
    return totals


def _unit(unit: int, ts: int, layers: int, totals: dict) -> tuple[list[str], int]:
    """One operator in a layer's range: 14 events; times in ns. The device runs behind the host."""
    dur = 3_000 + unit * 37 % 900
    shape = 64 << (unit % 4)
    rows, at = [], ts

    def x(cat: str, name: str, start: int, length: int, args: str, pid="4242", tid="4242") -> None:
        row = totals.setdefault(cat, {"events": 0, "total_ns": 0})
        row["events"] += 1
        row["total_ns"] += length
        rows.append(
            f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n    '
            f'"ts": {_us(start)}, '
            f'"dur": {_us(length)},\n    "args": {{\n      {args}\n    }}\n  }}'
        )

    first = 8 * unit + 1
    x(
        "user_annotation",
        f"module: encoder.layer.{unit % layers}.attention",
        at,
        60_000,
        f'"External id": {first}',
    )
    for depth, name in enumerate(("aten::linear", "aten::addmm", "aten::add")):
        dims = f'"Input Dims": [[{shape}, 768], [768, 768], []], "Input type": ["c10::Half", "c10::Half", ""]'
        x(
            "cpu_op",
            name,
            at + 1_000 * (depth + 1),
            50_000 - 4_000 * depth,
            f'"External id": {first + 1 + depth}, {dims}, "Ev Idx": {unit}',
        )
    for n in range(2):
        call, launch = 2 * unit + n + 1, at + 10_000 + 12_000 * n
        link = f'"External id": {first + 3}, "cbid": 211, "correlation": {call}'
        x("cuda_runtime", "cudaLaunchKernel", launch, 4_321, link)
        kernel = (
            f'"External id": {first + 3}, "queued": 0, "device": 0, "context": 1,\n      '
            f'"stream": 7, "correlation": {call},\n      '
            f'"registers per thread": {32 + 8 * (unit % 12)},\n      '
            f'"shared memory": {1024 * (unit % 60)},\n      '
            f'"blocks per SM": 7.757576,\n      "warps per SM": 31.030304,\n      '
            f'"grid": [{132 + unit % 900}, 1, 1],\n      '
            f'"block": [128, 1, 1],\n      "est. achieved occupancy %": 0'
        )
        x("kernel", _KERNELS[(unit + n) % len(_KERNELS)], launch + 9_000, dur, kernel, "0", "7")
        flow = f'"id": {call}, "cat": "ac2g", "name": "ac2g"'
        rows.append(f'  {{\n    "ph": "s", {flow}, "pid": 4242, "tid": 4242, "ts": {_us(launch)}\n  }}')
        rows.append(
            f'  {{\n    "ph": "f", {flow}, "pid": 0, "tid": 7, "ts": {_us(launch + 9_000)}, "bp": "e"\n  }}'
        )
    x("cpu_op", "aten::empty", at + 40_000, 1_500, f'"External id": {first + 4}, "Ev Idx": {unit}')
    memory = (
        f'"Total Reserved": 2097152, "Total Allocated": {4096 * (unit % 100)}, "Bytes": 4096, '
        f'"Addr": {140000000 + unit}'
    )
    rows.append(
        f'  {{\n    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", '
        f'"pid": 4242, "tid": 4242,\n    '
        f'"ts": {_us(at + 41_000)},\n    "args": {{\n      {memory}, '
        f'"Device Type": 1, "Device Id": 0\n    }}\n  }}'
    )
    return rows, ts + 61_000 + unit % 7


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), int(sys.argv[2])))
