"""Jobs of every kind that measures or imports, as short as they can be: what is killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import synthetic_trace

_BUSY = os.getloadavg()[0] / (os.cpu_count() or 1)
NEVER_S = min(300.0, 60.0 * max(1.0, _BUSY))  # longer than any of these takes, with the work beside it
OPTIONS = {"OMP_NUM_THREADS": "1", "FUSESCOPE_CANCEL_GRACE_S": "0.5", "FUSESCOPE_WARM_IDLE_S": "300"}
_LAYER = {"batch": 1, "seq": 8, "heads": 1, "head_dim": 16, "dtype": "float32", "compiler": "none"}
_LAYER |= {"budget_s": 0.001}
_SHORT = {"device": "cpu", "cache": "warm", "budget_s": 0.01, "min_s": 0.001, "min_samples": 3}
_SHORT |= {"precision": 1.0}
_MODEL = {"op": "model:bert-small", "impls": ["eager"], "dtype": "float32", "parts": False}
_SEARCH = {"heads": 2, "head_dim": 32, "seq": 16, "ranges": [[32768, 33300]], "strategy": "random"}

SPECS: dict[str, Callable[[Path], dict]] = {
    "bench": lambda at: _SHORT | {"op": "add", "impls": ["eager"], "cases": [{"n": n} for n in range(1, 7)]},
    "model": lambda at: _SHORT | _MODEL | {"cases": [{"seq": n, "layers": 1} for n in (2, 4, 6)]},
    "traverse": lambda at: _LAYER | {"ranges": [[32768, 32776]], "limit": 4, "segments": False},
    "search": lambda at: _LAYER | _SEARCH | {"evaluations": 4},
    "import": lambda at: {"file": str(at / "trace.json"), "keep": False},
}
"""Kind → spec, of the folder that ``inputs`` filled."""


def inputs(at: Path) -> None:
    synthetic_trace.write(at / "trace.json", 10_000)
