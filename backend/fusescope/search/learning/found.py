"""What a search found: the JSON object that its run keeps as an artifact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fusescope.core.records import Speedup
from fusescope.search.learning.explain import Boundary, SegmentCost
from fusescope.search.learning.explore import Step

NAME = "search.json"


@dataclass(frozen=True)
class Best:
    """The fastest scheme: its time, and its paired speed-ups by baseline where both were measured again. Of
    a replay also the best of all schemes (ms), and after how many evaluations one within 3 % was found."""

    code: str
    ms: float = field(metadata={"low": 0})
    words: str = ""
    speedups: Mapping[str, Speedup | None] = field(default_factory=dict)
    best_of_all_ms: float | None = None
    to_3_percent: int | None = None


@dataclass(frozen=True)
class Found:
    """``result`` None while the search goes on. asked: how many codes the strategy was to give each time:
    with them and the seed the same times lead to the same search."""

    history: tuple[Step, ...]
    strategy: str | None = None
    seed: int | None = None
    replay: str | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)
    candidates: int = 0
    asked: tuple[int, ...] = ()
    result: Best | None = None
    boundaries: tuple[Boundary, ...] = ()
    segments: tuple[SegmentCost, ...] = ()
