"""Strategies on made-up landscapes, and what explains the best."""

from itertools import pairwise

import pytest
from landscape import landscape, some

from fusescope.search import encoding
from fusescope.search.learning import explain, explore

SEEDS = 10


@pytest.mark.slow
def test_guided_search_needs_few_evaluations():
    """Within 3 % of the best using at most 5 % of the evaluations in 9 of 10 seeds; 1,000 candidates."""
    pytest.importorskip("xgboost")
    truth = some(5, 1000, noise=0.005)
    best, limit = min(truth.values()), 50
    near = sum(ms <= 1.03 * best for ms in truth.values())
    assert near < 1000 / limit, "so rare that drawing blindly would not do"
    reached = [explore.evaluations_to(explore.replay(truth, "guided", limit, s), best) for s in range(SEEDS)]
    assert sum(r is not None for r in reached) >= 9, reached


def test_guided_beats_drawing_blindly():
    truth = some(5, 600, noise=0.005)
    best = min(truth.values())

    def mean(strategy):
        return sum(explore.replay(truth, strategy, 48, s)[-1].best_ms / best for s in range(4)) / 4

    assert mean("additive") < mean("evolutionary") < mean("random")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", explore.STRATEGIES)
def test_no_code_is_asked_for_twice_and_all_are_in_the_end(strategy):
    if strategy == "guided":
        pytest.importorskip("xgboost")
    truth = landscape(2, 0.01, list(encoding.schemes(True)))
    steps = explore.replay(truth, strategy)
    assert sorted(s.code for s in steps) == sorted(truth) and [s.number for s in steps] == list(range(1, 129))
    assert all(s.ms == truth[s.code] for s in steps) and steps[-1].best_ms == min(truth.values())
    assert all(a.best_ms >= b.best_ms for a, b in pairwise(steps))
    assert explore.replay(truth, strategy, 24) == explore.replay(truth, strategy, 24), "one seed, one search"
    if strategy != "exhaustive":
        assert explore.replay(truth, strategy, 24, seed=1) != steps[:24]


@pytest.mark.parametrize("strategy", ["additive", "evolutionary"])
def test_failures_are_no_answers(strategy):
    chooser = explore.make(strategy, encoding.schemes(True), 0)
    seen = []
    while some := chooser.ask(8):
        seen += some
        chooser.tell({c: None if c.endswith("0") else 1.0 + len(seen) / 1000 for c in some})
    assert len(seen) == len(set(seen)) == 128
    silent = explore.make(strategy, encoding.schemes(True), 0)
    while some := silent.ask(8):
        silent.tell(dict.fromkeys(some))


def test_equivalent_candidates_are_one():
    chooser = explore.make("exhaustive", ["21845", "10922", "0101010101010101"])
    assert chooser.ask(8) == ["0101010101010101"] and chooser.ask(8) == []


def test_history_with_failures():
    history = explore.History()
    history.add({"a": None, "b": 2.0})
    history.add({"c": 3.0, "d": 1.0})
    assert [s.best_ms for s in history.steps] == [None, 2.0, 2.0, 1.0] and history.best == ("d", 1.0)
    assert (
        explore.evaluations_to(history.steps, 1.0) == 4 and explore.evaluations_to(history.steps, 0.5) is None
    )


def test_what_is_no_search():
    with pytest.raises(ValueError, match="a strategy is one of guided"):
        explore.replay({"21845": 1.0}, "greedy")
    with pytest.raises(ValueError, match="no candidate"):
        explore.replay({}, "random")
    with pytest.raises(ValueError, match="evaluations must be an integer of at least 1, not 0"):
        explore.replay({"21845": 1.0}, "random", 0)


def test_boundaries_that_matter():
    """A landscape in which one cut costs 10 us, another saves 5, the attention saves 20, and nothing else
    counts."""
    truth = {}
    for code in [*encoding.schemes(True), *list(encoding.schemes(False))[::37]]:
        cuts = encoding.boundaries(code)
        truth[code] = 0.1 + 0.010 * (11 in cuts) - 0.005 * (9 in cuts) - 0.020 * encoding.attention(code)
    found = explain.boundaries(truth)
    effect = {b.after: b for b in found}
    assert [b.after for b in found] == [None, *range(14)]
    assert effect[11].effect_ms == pytest.approx(0.010, abs=1e-4) and effect[9].effect_ms == pytest.approx(
        -0.005, abs=1e-4
    )
    assert effect[None].effect_ms == pytest.approx(-0.020, abs=1e-3) and abs(effect[3].effect_ms) < 1e-3
    assert all(b.low <= b.effect_ms <= b.high for b in found)
    best = min(truth, key=truth.get)
    assert effect[11].measured and effect[11].flipped_ms == pytest.approx(truth[best] + 0.010)
    assert encoding.boundaries(effect[11].flipped_code) == tuple(sorted({*encoding.boundaries(best), 11}))
    assert effect[4].flipped_code is None, "inside the attention nothing can be turned"
    assert effect[11].names == ("FFN GEMM 1", "bias + GELU")
    only = explain.boundaries(landscape(0, 0.0, list(encoding.schemes(True))))
    assert only[0].effect_ms is None and only[0].flipped_ms is None, (
        "without other schemes nothing is known of the attention"
    )
    with pytest.raises(ValueError, match="at least 3 schemes"):
        explain.boundaries({"21845": 1.0})


def test_segment_costs_add_up():
    truth = some(3, 400, noise=0.0)
    costs = {(c.operators, c.attention): c for c in explain.segments(truth)}
    for code, ms in list(truth.items())[:50]:
        attention = encoding.attention(code)
        total = sum(costs[tuple(p), attention and p == encoding.ATTENTION].ms for p in encoding.parts(code))
        assert total == pytest.approx(ms, rel=0.02)
    assert sum(c.count for c in costs.values()) == sum(len(encoding.parts(c)) for c in truth)
