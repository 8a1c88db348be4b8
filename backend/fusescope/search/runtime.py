"""What a generated module needs: ``compiled`` for its segments, and ``main``, which checks and times it when
it is run alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from fusescope.search.measuring import inputs
from fusescope.search.scheme import unfused
from fusescope.search.scheme.setting import Setting


def compiled(function: Callable) -> Callable:
    """The function under torch.compile for the shapes it is called with; a graph break is an error, not a
    slower answer."""
    import torch

    return torch.compile(function, fullgraph=True, dynamic=False)


def main(layer: Callable, code: str, **setting: Any) -> None:
    """Check a generated layer against the unfused one in float64, time both in turn, say so, and end the
    program.

    Options of the program: --device, --seed, --seconds (of sampling). Exit code 0 right, 1 wrong, 2 where the
    device is not there.
    """
    parser = argparse.ArgumentParser(description=f"Check and time fusion scheme {code}.")
    parser.add_argument(
        "--device", default=setting["device"], help=f"cpu or cuda:N (default {setting['device']})"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default 0)")
    parser.add_argument("--seconds", type=float, default=2.0, help="most time for sampling (default 2)")
    args = parser.parse_args()
    try:
        where = Setting(**setting | {"device": args.device})
        _check_device(where)
    except (TypeError, ValueError) as e:
        parser.error(str(e))
    raise SystemExit(_run(layer, code, where, args.seed, args.seconds))


def _check_device(where: Setting) -> None:
    import torch

    if where.cuda and not torch.cuda.is_available():
        raise ValueError(
            f"{where.device} is not here: torch sees no CUDA device; --device cpu runs it on the CPU"
        )


def _run(layer: Callable, code: str, where: Setting, seed: int, seconds: float) -> int:
    import torch

    from fusescope.measure import compare
    from fusescope.measure.checking import check

    print(f"scheme {code}: {where}")
    with torch.no_grad():
        values = inputs.make(where, seed)
        ref = inputs.reference(values)["out"]
        arguments = inputs.arguments(values)
        outcome = check.compare(layer(**arguments), ref, inputs.tolerance(where, range(15), ref))
        if outcome.reason:
            print(f"wrong: {outcome.reason}")
            return 1
        print(f"correct: largest error {outcome.accuracy.max_abs:.3g} against the unfused layer in float64")
        runs = {"this scheme": lambda: layer(**arguments), "unfused": lambda: unfused.run(values)["out"]}
        samplers = {name: sampler(run, where.device) for name, run in runs.items()}
        found = compare.rounds(samplers, compare.Stop(budget_s=seconds), seed, baseline="unfused")
    for name, series in found.items():
        time = series.time()
        print(
            f"{name}: {time.median:.4g} ms, 95 % interval {time.low:.4g} to {time.high:.4g} "
            f"({series.mode}, n = {time.n})"
        )
    ratio = compare.speedup(found["unfused"], found["this scheme"])
    print(
        f"speed-up over unfused {ratio.median:.3g}, 95 % interval {ratio.low:.3g} to {ratio.high:.3g}: "
        f"{ratio.words}"
    )
    return 0


def sampler(run: Callable[[], Any], device: str, pool=None, expected_ms: float | None = None):
    """Our timer for a call: its own time by graph replay on a GPU (``pool``, ``expected_ms``: as of
    CudaGraph), wall time on the CPU."""
    from fusescope.measure.timing import graph, timer

    if not device.startswith("cuda"):
        return timer.CpuEager(run)
    return graph.CudaGraph([run], device, "graph", pool, expected_ms)
