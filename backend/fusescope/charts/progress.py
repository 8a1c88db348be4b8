"""Progress of a running job as text and as a share, also between two of its own reports."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fusescope.charts.numbers import rough_seconds, seconds
from fusescope.core.records import Progress

_FOLDER = re.compile(r"(?<!\S)\S*/(?=[^/\s]+\.py:)")  # of a user's function, which its file's name tells
_WAVERS_S, _WAVERS = 5.0, 0.1  # seconds, and share, by which an estimate of the time left goes up and down
_LATE = 0.25  # of the time first expected: what is beyond it is said


@dataclass(frozen=True)
class Shown:
    """What a page shows of a job at a moment. left_s: the time left; expected_s: what the whole was first
    expected to take; at: Unix seconds."""

    begun: float | None
    share: float = 0.0
    left_s: float | None = None
    expected_s: float | None = None
    words: str = ""
    at: float = 0.0


@dataclass(frozen=True)
class Moment:
    """A job now. elapsed_s: since its device was free for it; None before."""

    progress: Progress
    elapsed_s: float | None
    now: float  # Unix seconds

    @property
    def left_s(self) -> float | None:
        """What is left by the last word, less the time since; None where the job does not say."""
        p = self.progress
        if p.eta_s is None:
            return None
        return max(0.0, p.eta_s - max(0.0, self.now - (p.updated or self.now)))

    @property
    def share(self) -> float:
        """0 … 1, of the time where the job says what is left, else of its steps."""
        p = self.progress
        if p.eta_s is not None and self.elapsed_s is not None:
            return min(0.99, self.elapsed_s / max(self.elapsed_s + self.left_s, 1e-3))
        return min(1.0, p.done / p.total) if p.total else 0.0

    @property
    def remaining(self) -> str:
        """ "about 20 s left", or that it takes longer than expected; "" where the job does not say."""
        return self._remaining(self.left_s)

    @property
    def words(self) -> str:
        """ "3 of 24 · checking v2_blockwise · 12 s · about 20 s left"."""
        return self.told(self.remaining)

    def after(self, before: Shown | None, begun: float | None) -> Shown:
        """What a page shows, which showed ``before`` of the same job. The share never goes back, and the time
        left goes up only by more than its estimate wavers; that it takes longer than was first expected
        is said. begun: Unix seconds; of a job that began anew nothing is kept."""
        before = before if before and before.begun == begun else Shown(begun)
        left = self.left_s
        if left is not None and before.left_s is not None:
            wavers = max(_WAVERS_S, _WAVERS * before.left_s)
            left = min(left, before.left_s) if left <= before.left_s + wavers else left
        whole = None if left is None or self.elapsed_s is None else self.elapsed_s + left
        first = whole if before.expected_s is None else before.expected_s
        late = whole is not None and whole > first * (1 + _LATE) + _WAVERS_S
        words = self.told(self._remaining(left, late))
        return Shown(begun, max(self.share, before.share), left, first, words, self.now)

    def _remaining(self, left_s: float | None, late: bool = False) -> str:
        if left_s is None:
            return ""
        if left_s == 0 and (self.progress.eta_s or 0) >= 1:
            return "longer than expected"
        return f"{'longer than expected, ' * late}about {rough_seconds(left_s)} left"

    def told(self, remaining: str) -> str:
        """``words`` with that as the time left."""
        p = self.progress
        parts = (
            f"{p.done:,} of {p.total:,}" if p.total and p.done else "",
            _FOLDER.sub("", p.message)[:90],
            _whole(self.elapsed_s),
            remaining,
        )
        return " · ".join(part for part in parts if part) or "working"


def _whole(elapsed_s: float | None) -> str:
    """Whole seconds: "8 s", "3 min 20 s"; "" where there are none."""
    if elapsed_s is None:
        return ""
    return f"{int(elapsed_s)} s" if elapsed_s < 60 else seconds(elapsed_s)


def waiting(text: str, since: float | None, now: float) -> str:
    """What a queued job waits for, and how long it has: "waiting for its process to start · 8 s"."""
    return " · ".join(part for part in (text, _whole(max(0.0, now - since)) if since else "") if part)


def last_line(log: str) -> str:
    """The last line of a log that says something, as printable text of one line."""
    lines = ("".join(c if c.isprintable() else " " for c in line).strip() for line in log.splitlines())
    return next((line for line in reversed(list(lines)) if line), "")
