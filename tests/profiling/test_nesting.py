"""What encloses what, against the plainest way to find it: one stack a lane."""

import numpy as np
import pytest
from made_up import load, op, trace

from fusescope.profiling.derive import enclosing


def by_stack(start, end, lane, spans):
    stacks: dict = {}
    found = []
    for n in range(len(start)):
        stack = stacks.setdefault(lane[n], [])
        while stack and end[stack[-1]] <= start[n]:
            stack.pop()
        found.append((stack[-1] if stack else -1, len(stack)))
        if spans[n]:
            stack.append(n)
    return found


def made(seed: int, count: int, lanes: int, outlasting: float, scale: int):
    """Spans in spans, cut out of each other; some outlast the one around them, some last no time, many share
    a start or an end."""
    numbers = np.random.default_rng(seed)
    start = np.sort(numbers.integers(0, 3 * count, count)) * scale
    end = start + numbers.integers(0, 40, count) * scale
    lane = numbers.integers(-1, lanes - 1, count)
    order = np.lexsort((start - end, start, lane))
    start, end, lane = start[order], end[order], lane[order]
    for one in np.unique(lane):
        open_: list[int] = []
        for n in np.flatnonzero(lane == one):
            while open_ and open_[-1] <= start[n]:
                open_.pop()
            if open_ and numbers.random() >= outlasting:
                end[n] = min(end[n], open_[-1])
            open_.append(end[n])
    order = np.lexsort((start - end, start, lane))
    return start[order], end[order], lane[order], numbers.random(count) < 0.8


@pytest.mark.parametrize("scale", [1, 1 << 53], ids=["near", "years apart"])
@pytest.mark.parametrize("outlasting", [0.0, 0.002, 0.3])
@pytest.mark.parametrize("lanes", [1, 7, 400])
def test_the_innermost_span_is_that_of_a_stack(lanes, outlasting, scale):
    for seed in range(8):
        start, end, lane, spans = made(seed, 300, lanes, outlasting, scale)
        parent, depth = enclosing.find(start, end, lane, spans)
        assert list(zip(parent.tolist(), depth.tolist(), strict=True)) == by_stack(start, end, lane, spans), (
            seed
        )


@pytest.mark.parametrize("outlasting", [False, True])
def test_spans_a_hundred_thousand_deep_cost_no_square_of_time(outlasting):
    count = 100_000
    start = np.arange(count)
    end = 2 * count - start
    if outlasting:
        end[-1] = 3 * count
    parent, depth = enclosing.find(start, end, np.zeros(count, np.int64), np.ones(count, bool))
    most = enclosing.DEEPEST
    assert parent[:most].tolist() == list(range(-1, most - 1)) and set(parent[most:].tolist()) == {most - 1}
    assert depth[: most + 1].tolist() == list(range(most + 1)) and depth.max() == most


def test_nothing_at_all():
    none = np.zeros(0, np.int64)
    assert [len(x) for x in enclosing.find(none, none, none, none < 0)] == [0, 0]


def test_what_outlasts_its_operator_takes_of_it_only_up_to_its_end(tmp_path):
    events = [op("a", 0, 10), op("b", 5, 10), op("c", 20, 4), op("d", 21, 2), op("e", 24, 3)]
    _, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    assert {o["name"]: o["self_ns"] for o in rows["operators"]} == {
        "a": 5_000,
        "b": 10_000,
        "c": 2_000,
        "d": 2_000,
        "e": 3_000,
    }
