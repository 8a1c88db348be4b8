"""What the search promises, held against the sweeps that ship with the project; several sessions of one
setting count as one."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from fusescope.cli.verbs import traverse
from fusescope.core.paths import ROOT
from fusescope.core.records import Record
from fusescope.search import encoding, sessions
from fusescope.search.learning import cost_model, explore, pairs
from fusescope.search.scheme.setting import OP, of_spec
from fusescope.store import folder

pytestmark = pytest.mark.slow
FEWEST = 500  # schemes of a setting that make its sweep more than a trial
LEARNED = 300
SWEEPS: dict[str, list[Path]] = defaultdict(
    list
)  # by setting and device in words; records are read when needed
for path in sorted((ROOT / "profiles" / "recorded").glob("*-traverse-*")):
    SWEEPS[f"{of_spec(folder.read(path).spec)} {folder.read(path).device_name}"].append(path)
each = pytest.mark.parametrize("name", SWEEPS, ids=str)


@cache
def recorded(name: str) -> list[Record]:
    return [r for path in SWEEPS[name] for r in folder.records(path) if r.op == OP]


def test_what_the_verb_answers_of_a_sweep():
    name = min(SWEEPS, key=lambda name: len(SWEEPS[name]))
    schemes = {r.impl: r for r in recorded(name) if encoding.is_code(r.impl)}
    data = traverse.summary("a run", recorded(name))
    jsonschema.validate(data, json.loads((ROOT / "backend/fusescope/schemas/traverse.json").read_text()))
    good = sorted(r.ms for r in schemes.values() if r.status == "ok")
    assert [b["ms"] for b in data["best"]] == good[: traverse.SHOWN] and data["measured"] == len(good)
    assert {f["code"] for f in data["failures"]} == {c for c, r in schemes.items() if r.status != "ok"}
    assert data["baselines"] and not {b["code"] for b in data["baselines"]} & set(schemes)
    shown = traverse.text(data)
    assert all(b["code"] in shown for b in (*data["best"], *data["baselines"]))


def landscape(name: str) -> dict[str, float]:
    found = pairs.of_records(recorded(name))
    return found if len(found) >= FEWEST else pytest.skip(f"{len(found)} schemes are too few")


def boxes(name: str) -> list[dict[str, float]]:
    """The pairs that one cost model may learn from: of each box that measured enough schemes, else of all."""
    found = []
    for path in SWEEPS[name]:
        run, records = folder.read(path), folder.records(path)
        parts = [
            pairs.beside_unfused(p) for p in sessions.machines(run.environment.get("sittings", ()), records)
        ]
        large = [known for known in parts if len(known) >= FEWEST] or [pairs.beside_unfused(records)]
        found += [known for known in large if len(known) >= FEWEST]
    return found or pytest.skip("too few schemes of one box")


@pytest.mark.sample(1)
@each
def test_guided_search_on_recorded_times(name):
    """Within 3 % of the best with at most 5 % of the evaluations (10 % of a few hundred) in 9 of 10 seeds."""
    pytest.importorskip("xgboost")
    truth = landscape(name)
    limit, goal = round(len(truth) * (0.05 if len(truth) > 2000 else 0.1)), 1.03 * min(truth.values())
    reached = [explore.replay(truth, "guided", limit, s, goal)[-1].best_ms <= goal for s in range(10)]
    assert sum(reached) >= 9, reached


@pytest.mark.sample(1)
@each
def test_cost_model_on_recorded_times(name):
    """Rank correlation of at least 0.9 on held-out codes with 300 pairs."""
    pytest.importorskip("xgboost")
    for truth in boxes(name):
        codes = random.Random(0).sample(list(truth), len(truth))
        learned, held = codes[:LEARNED], codes[LEARNED:][:2000]
        model = cost_model.train({c: truth[c] for c in learned})
        predicted = [p.ms for p in model.predict(held)]
        assert cost_model.rank_correlation(predicted, [truth[c] for c in held]) >= 0.9


@pytest.mark.sample(1)
@each
def test_the_best_scheme_is_no_slower_than_compiling_the_whole_layer(name):
    """Beside both forms of it, as the sweep itself measured them (of several sessions, the fastest)."""
    ok = [r for r in recorded(name) if r.status == "ok"]
    compiled = [r.ms for r in ok if r.impl in ("compile", "compile_sdpa")]
    assert compiled and min(pairs.of_records(ok).values()) <= min(compiled)
