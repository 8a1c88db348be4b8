"""The window of packed attention: how a case says it, and how many keys and tiles are seen through it.

A window is (left, right): the query at position p sees the keys p − left ≤ j ≤ p + right of its sequence;
−1: no limit on that side. No torch.
"""

from __future__ import annotations

from fusescope.core.schema import Parameter

_MOST = 1 << 20


def _side(name: str, what: str) -> Parameter:
    return Parameter(
        name,
        "int",
        None,
        f"sliding window: keys that a query sees at most {what} its own; all where left out",
        low=0,
        high=_MOST,
        typical=(127, 255, 511, 1023, 4095),
        sweep=True,
        default_help="no limit",
        omitted=True,
    )


PARAMETERS = (_side("left", "before"), _side("right", "after"))


def check(case) -> None:
    """ValueError where causal and right contradict each other."""
    if case["causal"] == "yes" and case.get("right"):
        raise ValueError(f"right is 0 or left out where causal is yes, not {case['right']}")


def given(case) -> tuple[int, int] | None:
    """What attention_varlen is given; None where there is no window."""
    found = case.get("left", -1), case.get("right", -1)
    return None if found == (-1, -1) else found


def of_case(case) -> tuple[int, int]:
    """What is seen, causal included."""
    return case.get("left", -1), 0 if case["causal"] == "yes" else case.get("right", -1)


def fewest(n: int, window: tuple[int, int]) -> int:
    """Keys that the query with the fewest of a sequence of n sees: its first or its last."""
    return 1 + min(n - 1 if side < 0 else min(side, n - 1) for side in window)


def live(n: int, window: tuple[int, int]) -> int:
    """Pairs of a query and a key that it sees, of a sequence of n."""
    return n + sum(_pairs(n, n if side < 0 else side) for side in window)


def live_tiles(n: int, window: tuple[int, int]) -> int:
    """Tiles of 64 × 64 with any such pair."""
    tiles = -(-n // 64)
    return tiles + sum(_pairs(tiles, tiles if side < 0 else -(-side // 64)) for side in window)


def _pairs(n: int, most: int) -> int:
    """The sum of min(i, most) over 0 ≤ i < n."""
    few = min(n, most + 1)
    return few * (few - 1) // 2 + (n - few) * most
