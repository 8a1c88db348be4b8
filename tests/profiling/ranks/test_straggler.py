"""A rank is named as the straggler where the evidence is clear, and else what is seen is said."""

from pathlib import Path

import numpy as np
import pytest

from fusescope.analysis.ranks import straggler
from fusescope.store import profile

RECORDED = "20261126-232952-parallel-c90ffa"


def said(last, ahead, ranks, span=None):
    """Of collectives by their last rank and the ns that it alone held the others up."""
    last, ahead = np.asarray(last), np.asarray(ahead)
    rows = [{"plausible": True, "ahead_ns": int(ns)} for ns in ahead]
    times = [
        {
            "rank": r,
            "span_ns": span or 4 * int(ahead.sum()),
            "collectives": len(last),
            "last": int((last == r).sum()),
            "held_up_ns": int(ahead[last == r].sum()),
        }
        for r in range(ranks)
    ]
    return straggler.sentence(times, rows)


def test_a_rank_that_is_always_last_is_named():
    text = said([2] * 6, [30] * 6, 3)
    assert text == (
        "Rank 2 holds the others up: it came last to 6 of 6 collectives and alone delayed them for 25 % of "
        "the time."
    )
    assert said([0] * 10 + [1] * 10, [90] * 10 + [10] * 10, 2).startswith("Rank 0 holds")


def test_a_rank_that_is_last_seldom_but_long_is_named():
    last = [0 if n % 10 == 0 else 1 + n % 7 for n in range(100)]
    assert said(last, [500 if r == 0 else 5 for r in last], 8).startswith(
        "Rank 0 holds the others up: it came"
    )


def test_two_ranks_that_take_turns_are_both_said():
    text = said([0, 1] * 7 + [0], [104] * 15, 2)
    assert text == (
        "No rank alone holds the others up: rank 0 came last to 8 of 15 collectives and alone delayed the "
        "others for 13.3 % of the time, rank 1 came last to 7, 11.7 % of the time."
    )


@pytest.mark.parametrize(
    "last, ahead, ranks",
    [([2, 2], [30, 25], 3), ([0] + [1, 2, 3] * 5, [900] + [5] * 15, 4), ([1] * 4, [10] * 4, 2)],
)
def test_a_single_delay_or_few_collectives_may_be_chance(last, ahead, ranks):
    text = said(last, ahead, ranks)
    assert text.startswith("No rank clearly holds the others up: rank") and "may be chance" in text


@pytest.mark.slow
def test_equal_ranks_are_seldom_accused():
    random, named = np.random.default_rng(1), 0
    for _ in range(100):
        ranks, count = int(random.integers(2, 9)), int(random.integers(2, 60))
        text = said(random.integers(ranks, size=count), random.lognormal(8, 2, count) + 1, ranks)
        named += text.startswith("Rank")
    assert named <= 8


def test_nothing_to_tell():
    assert said([], [], 2, span=100).startswith("No collective was matched")
    assert said([0, 1], [1, 1], 2, span=10_000).startswith("No straggler")


def test_the_recorded_ranks_take_turns():
    path = Path(__file__).parents[3] / "profiles" / "recorded" / RECORDED
    text = straggler.sentence(profile.rows(path, "rank_time"), profile.rows(path, "collectives"))
    assert text.startswith("No rank alone holds the others up: rank 0 came last to 8 of 15")
