"""What jobs were promised to take against what they took: estimates held against real jobs on this machine.

    python3 scripts/promises.py [--rounds 2] [--device cpu] [--fresh]

--fresh: with an empty build folder and compiler cache of its own, as on a fresh clone (the first job builds
the kernels). Ends with 1 where fewer than 90 % of the jobs were within 1.5 times of the promise.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time

from fusescope.analysis import estimate
from fusescope.core.machine import environment, load, stage_times
from fusescope.core.records import BenchSpec, Run
from fusescope.jobs import kinds, submit
from fusescope.store import folder, library

WITHIN, SHARE = 1.5, 0.9
_EVERY_S = 0.2
_LOOK_S = 3.0  # between two jobs, in which a person reads the one and starts the other
JOBS = (
    ("bench", "softmax", ("eager", "cpu"), ({},)),
    ("bench", "softmax", ("eager", "cpu", "compile"), ({},)),
    ("bench", "gemm", ("eager", "cpu"), ({"m": 256, "n": 256, "k": 256}, {"m": 512, "n": 512, "k": 512})),
    ("bench", "attention", ("eager", "sdpa", "flex"), ({"seq": 256},)),
    ("bench", "attention", ("eager", "sdpa", "cpu"), ({"seq": 1024},)),
    ("bench", "attention", ("eager", "sdpa"), tuple({"seq": n} for n in (64, 128, 256))),
    ("bench", "layernorm", ("eager", "cpu"), ({},)),
    ("model", "model:bert-base", ("eager", "sdpa"), ({"layers": 2, "seq": 128, "batch": 1},)),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Hold estimates against real jobs.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default=environment.devices()[0])
    parser.add_argument("--fresh", action="store_true", help="with an empty build folder and compiler cache")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["FUSESCOPE_PROFILES"] = home
        if a.fresh:
            os.environ["FUSESCOPE_BUILD"] = f"{home}/build"
            os.environ["FUSESCOPE_STAGE_TIMES"] = f"{home}/build/stage_times.json"
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{home}/inductor"
        ratios = [_held(*job, a.device) for _ in range(a.rounds) for job in JOBS]
    kept = sum(1 / WITHIN <= r <= WITHIN for r in ratios)
    print(f"{kept} of {len(ratios)} jobs within {WITHIN:g} times of the promise")
    return 0 if kept >= SHARE * len(ratios) else 1


def _held(kind: str, op: str, impls: tuple[str, ...], cases: tuple[dict, ...], device: str) -> float:
    """Seconds taken over seconds promised, of one job."""
    module = kinds.load(kind)
    own = tuple(i for i in impls if i != "cpu" or device == "cpu")
    wanted = {"op": op, "impls": own, "cases": cases, "baseline": "eager", "cache": "warm", "device": device}
    whole = module.validate({k: list(v) if isinstance(v, tuple) else v for k, v in wanted.items()})
    spec = BenchSpec.from_json({k: v for k, v in whole.items() if k in BenchSpec.__dataclass_fields__})
    load.crowding()
    time.sleep(_LOOK_S)
    promised = estimate.seconds(spec, module.facts(spec), stage_times.read())
    run, waited = _ended(submit.submit(kind, whole))
    took = run.finished - run.created - waited
    busy = os.getloadavg()[0]
    print(
        f"{op:16} {len(own)} × {len(cases)}  promised {promised:6.1f} s, took {took:6.1f} s: "
        f"{took / promised:4.2f}  ({run.status}, load {busy:.1f}"
        + (f", {waited:.0f} s behind other jobs)" if waited > _EVERY_S else ")"),
        flush=True,
    )
    return took / promised


def _ended(run_id: str) -> tuple[Run, float]:
    """The run at its end, and the seconds that it was queued behind jobs of others, which are no part of a
    promise."""
    waited, at = 0.0, time.monotonic()
    while (run := folder.read(library.find(run_id))).live:
        place = next((job["place"] for job in submit.queue() if job["id"] == run_id), None)
        time.sleep(_EVERY_S)
        now = time.monotonic()
        waited, at = waited + (now - at if place else 0.0), now
    return run, waited


if __name__ == "__main__":
    sys.exit(main())
