"""One thing to do about what limits a profiled program."""

from __future__ import annotations

from dataclasses import dataclass

WORTH = 0.05  # of the device's time: what could save less is not recommended


@dataclass(frozen=True)
class Recommendation:
    """title: what to do; says: why, with figures; gain: at most so many times as fast, None where the profile
    gives no bound; view: the view of the profile that shows it."""

    title: str
    says: str
    gain: float | None = None
    view: str = ""


def shortened(text: str, most: int) -> str:
    """At most so many characters; a sentence ends with a whole word."""
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    words = cut.rpartition(" ")[0]
    return f"{words if len(words) > most // 2 else cut}…"
