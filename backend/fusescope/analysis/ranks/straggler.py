"""Which rank holds the others up, where that is clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LEAST = 0.01
"""Of the time: below it a rank that comes last delays nobody that matters."""
_TIMES = 2.0  # as long as the next rank at least
_CHANCE = 0.05
_DRAWS = 4000
_COUNTED = 1000  # collectives that are drawn, the longest; the rest is small and even


def sentence(times: Sequence[Mapping[str, Any]], collectives: Sequence[Mapping[str, Any]]) -> str:
    """The answer in one sentence, from rows of rank_time and collectives: which rank holds the others up,
    that none does, or what is seen where neither is clear.

    A rank is named that delayed the others twice as long as any other rank did, and longer than chance
    explains: if each collective's last rank were drawn anew, any rank would get as much in less than 5 % of
    the draws.
    """
    shared = max((t["collectives"] for t in times), default=0)
    if not shared:
        return "No collective was matched across ranks, so nothing tells who waits for whom."
    worst, *others = sorted(times, key=lambda t: -t["held_up_ns"])
    span = max(t["span_ns"] for t in times)
    part = lambda of: of["held_up_ns"] / span if span else 0.0  # noqa: E731
    if part(worst) < LEAST:
        return (
            f"No straggler: no rank alone holds the others up for 1 % of the time ({shared:,} collectives)."
        )
    last = f"came last to {worst['last']:,} of {shared:,} collectives and alone delayed"
    long = f"for {100 * part(worst):.3g} % of the time"
    rival = others[0] if others else None
    if rival and worst["held_up_ns"] < _TIMES * rival["held_up_ns"]:
        return (
            f"No rank alone holds the others up: rank {worst['rank']} {last} the others {long}, rank "
            f"{rival['rank']} came last to {rival['last']:,}, {100 * part(rival):.3g} % of the time."
        )
    if _by_chance(worst["held_up_ns"], collectives, len(times)) >= _CHANCE:
        return (
            f"No rank clearly holds the others up: rank {worst['rank']} {last} the others {long}, which may "
            "be chance; more steps would tell."
        )
    return f"Rank {worst['rank']} holds the others up: it {last} them {long}."


def _by_chance(held_up_ns: float, collectives: Sequence[Mapping[str, Any]], ranks: int) -> float:
    """How probable it is that some rank delays the others as long where each is equally often last."""
    ahead = np.array([c["ahead_ns"] for c in collectives if c["plausible"] and c["ahead_ns"] > 0], float)
    ahead = np.sort(ahead)[::-1]
    if ranks < 2 or not len(ahead):
        return 1.0
    counted, even = ahead[:_COUNTED], ahead[_COUNTED:].sum() / ranks
    random, most = np.random.default_rng(0), 0
    for _ in range(_DRAWS):
        last = random.integers(ranks, size=len(counted))
        most += np.bincount(last, counted).max() + even >= held_up_ns * (1 - 1e-9)
    return most / _DRAWS
