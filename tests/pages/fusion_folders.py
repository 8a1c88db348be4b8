"""Run folders of fusion schemes made from arithmetic, for tests of the Fusion page: no claim of
measurement."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import folders
import synthetic

from fusescope.core.records import Record, Run, Speedup, Times
from fusescope.search import encoding
from fusescope.search.scheme.setting import Setting

SETTING = Setting(1, 16, 1, 32, dtype="float32", device="cpu", compiler="none")


def record(impl: str, ms: float, base: float = 2.0) -> Record:
    gain = Speedup(
        "eager",
        base / ms,
        0.97 * base / ms,
        1.03 * base / ms,
    )
    return Record(
        "layer",
        impl,
        SETTING.case(),
        "float32",
        "cpu",
        "ok",
        time_ms=Times(eager=synthetic.time(ms)),
        speedup=gain,
        backend="0 torch, …",
    )


@cache
def times(count: int = 80, seed: int = 1) -> dict[str, float]:
    """Fewer cuts are faster, and the attention helps."""
    draw = random.Random(seed)
    codes = draw.sample(list(encoding.schemes(False)), count - 20) + draw.sample(
        list(encoding.schemes(True)), 20
    )
    return {
        c: 1.0 + 0.05 * len(encoding.boundaries(c)) - 0.3 * encoding.attention(c) + draw.uniform(0, 0.01)
        for c in codes
    }


def run(kind: str, number: int, **changes) -> Run:
    spec = SETTING.spec() | {"ranges": None, "limit": 80, "strategy": "guided", "seed": 0}
    facts = {"device_name": "AMD EPYC", "device": "cpu"}
    return synthetic.run(
        f"20261120-13000{number}-{kind}-00000{number}", kind=kind, spec=spec, environment=facts, **changes
    )


def few(home: Path) -> dict[str, Run]:
    """A traverse with a failed scheme, and a search with its result."""
    known = times()
    broken = Record(
        "layer",
        "0" * 14 + "10",
        SETTING.case(),
        "float32",
        "cpu",
        "error",
        reason="segment 13 does <b>not</b> compile",
    )
    records = [record(c, ms) for c, ms in known.items()]
    beside = [record("unfused", 2.0), record("hand_fused", 0.9)]
    found = {"traverse": run("traverse", 1), "search": run("search", 2)}
    folders.write(home, found["traverse"], [*beside, *records, broken], samples=False)
    path = folders.write(home, found["search"], [*beside, *records[:30]], samples=False)
    best = min(list(known)[:30], key=known.get)
    edge = {
        "after": 3,
        "names": ["scores", "mask"],
        "effect_ms": 0.05,
        "low": 0.04,
        "high": 0.06,
        "flipped_code": best,
        "flipped_ms": 1.1,
        "measured": True,
    }
    gains = {
        "unfused": {"of": "eager", "median": 1.8, "low": 1.7, "high": 1.9, "verdict": "faster"},
        "compile": None,
    }
    steps = [
        {"number": i + 1, "code": r.impl, "ms": known[r.impl], "best_code": best, "best_ms": known[best]}
        for i, r in enumerate(records[:30])
    ]
    answer = {
        "strategy": "guided",
        "history": steps,
        "result": {"code": best, "ms": known[best], "speedups": gains},
        "boundaries": [
            edge,
            edge | {"after": None, "names": ["without", "hand-written attention"], "effect_ms": -0.3},
            edge | {"after": 9, "effect_ms": None},
        ],
        "segments": [
            {"operators": [0, 1], "ms": 0.2, "count": 12, "attention": False},
            {"operators": [2, 3, 4, 5, 6, 7], "ms": 0.1, "count": 9, "attention": True},
        ],
    }
    (path / "artifacts" / "search.json").write_text(json.dumps(answer))
    return found
