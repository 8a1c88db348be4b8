"""Progress of a running job as text and as a share, also between two of its own reports."""

from __future__ import annotations

from dataclasses import dataclass

from fusescope.charts.numbers import rough_seconds, seconds
from fusescope.core.records import Progress


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
        if self.left_s is None:
            return ""
        if self.left_s == 0 and self.progress.eta_s >= 1:
            return "longer than expected"
        return f"about {rough_seconds(self.left_s)} left"

    @property
    def words(self) -> str:
        """ "3 of 24 · checking v2_blockwise · 12 s · about 20 s left"."""
        p = self.progress
        parts = (
            f"{p.done:,} of {p.total:,}" if p.total and p.done else "",
            p.message[:90],
            _whole(self.elapsed_s),
            self.remaining,
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
