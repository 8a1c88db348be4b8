"""What the search promises, held against the traverses that ship with the project; several sittings of one
setting count as one."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from fusescope.core.paths import ROOT
from fusescope.core.records import Record
from fusescope.search import sessions
from fusescope.search.learning import cost_model, explore, pairs
from fusescope.search.scheme.setting import OP, of_spec
from fusescope.store import folder

FEWEST = 500  # schemes of a setting that make its traverse more than a trial
LEARNED = 300


def _recorded() -> dict[str, list[Record]]:
    """{setting and device in words: records} of all recorded traverses, however many schemes they have."""
    records = defaultdict(list)
    for path in sorted((ROOT / "profiles" / "recorded").glob("*-traverse-*")):
        run = folder.read(path)
        records[f"{of_spec(run.spec)} {run.device_name}"] += [r for r in folder.records(path) if r.op == OP]
    return records


RECORDED = _recorded()


def _boxes() -> dict[str, dict[str, float]]:
    """{setting, device and place: pairs} of the schemes that a surrogate may learn from together; all of a
    setting where no box measured enough of them."""
    found = {}
    for path in sorted((ROOT / "profiles" / "recorded").glob("*-traverse-*")):
        run, records = folder.read(path), folder.records(path)
        boxes = [
            pairs.beside_unfused(some)
            for some in sessions.boxes(run.environment.get("sittings", ()), records)
        ]
        large = [known for known in boxes if len(known) >= FEWEST] or [pairs.beside_unfused(records)]
        for number, known in enumerate(large):
            if len(known) >= FEWEST:
                found[f"{of_spec(run.spec)} {run.device_name}, box {number}"] = known
    return found


BOXES = _boxes()
LANDSCAPES = {name: p for name, some in RECORDED.items() if len(p := pairs.of_records(some)) >= FEWEST}
each = pytest.mark.parametrize(
    "name",
    LANDSCAPES or [pytest.param("none", marks=pytest.mark.skip(reason="no recorded traverse"))],
    ids=str,
)


@each
def test_guided_search_on_recorded_times(name):
    """Within 3 % of the best with at most 5 % of the evaluations (10 % of a few hundred) in 9 of 10 seeds."""
    pytest.importorskip("xgboost")
    truth = LANDSCAPES[name]
    limit, goal = round(len(truth) * (0.05 if len(truth) > 2000 else 0.1)), 1.03 * min(truth.values())
    reached = [explore.replay(truth, "guided", limit, s, goal)[-1].best_ms <= goal for s in range(10)]
    assert sum(reached) >= 9, reached


@pytest.mark.parametrize("name", BOXES, ids=str)
def test_surrogate_on_recorded_times(name):
    """Rank correlation of at least 0.9 on held-out codes with 300 pairs."""
    pytest.importorskip("xgboost")
    truth = BOXES[name]
    codes = random.Random(0).sample(list(truth), len(truth))
    learned, held = codes[:LEARNED], codes[LEARNED:][:2000]
    model = cost_model.train({c: truth[c] for c in learned})
    assert cost_model.rank_correlation([p.ms for p in model.predict(held)], [truth[c] for c in held]) >= 0.9


@pytest.mark.parametrize("name", RECORDED, ids=str)
def test_the_best_scheme_is_no_slower_than_compiling_the_whole_layer(name):
    """Beside both forms of it, as the traverse itself measured them (of several sittings, the fastest)."""
    ok = [r for r in RECORDED[name] if r.status == "ok"]
    compiled = [getattr(r.time_ms, r.main_mode).median for r in ok if r.impl in ("compile", "compile_sdpa")]
    assert compiled and min(pairs.of_records(ok).values()) <= min(compiled)
