"""The calls that an outside profiler (ncu, nsys) looks at: python -m fusescope.jobs.profiled.profiled_call
FILE.

FILE holds a case as JSON with ``calls`` and ``warmup``. Only the calls between cudaProfilerStart and Stop are
profiled; preparing the inputs, compiling and warming up come before. The profilers wrap this and not the
job's worker, because the job that starts them holds the device's lock: a worker inside would wait for it for
ever.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fusescope.jobs.profiled import one_case


def main(arguments: list[str]) -> int:
    import torch

    spec = json.loads(Path(arguments[0]).read_text())
    call = one_case.prepare(spec)
    on_gpu = spec["device"] != "cpu"
    for _ in range(spec["warmup"]):
        call()
    one_case.synchronize(spec["device"])
    if on_gpu:
        torch.cuda.set_device(spec["device"])
        torch.cuda.profiler.start()
    for step in range(spec["calls"]):
        if on_gpu:
            torch.cuda.nvtx.range_push(f"{spec['op']} {spec['impl']} call {step}")
        call()
        if on_gpu:
            torch.cuda.nvtx.range_pop()
    one_case.synchronize(spec["device"])
    if on_gpu:
        torch.cuda.profiler.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
