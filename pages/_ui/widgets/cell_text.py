"""As much of a text as a cell of the list of runs has room for: the grid cuts a letter in two."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate, takewhile

_LETTERS = (
    dict.fromkeys(" .,:;'|!iIjl·", 3.3) | dict.fromkeys("ft()[]r-/", 4.4) | dict.fromkeys("mwMW%@…", 10.7)
)
_LETTER = 7.0
"""Pixels of letters in the grid's font, and of any other."""
_MARKS = (": ", ", ")


def cut(text: object, most: float) -> object:
    """A text cut with an ellipsis to ``most`` pixels; what is no text as it is."""
    if not isinstance(text, str):
        return text
    ends = list(accumulate(_LETTERS.get(letter, _LETTER) for letter in text))
    if not ends or ends[-1] <= most:
        return text
    return f"{text[: bisect(ends, most - _LETTERS['…'])].rstrip(' ,:')}…"


def keep_end(text: object, end: str, most: float, share: float = 0.68) -> object:
    """A text that is too wide cut before its ``end``, which takes at most this ``share`` of the room."""
    if not isinstance(text, str) or cut(text, most) == text or not text.endswith(end) or end == text:
        return cut(text, most)
    tail = str(cut(end.lstrip(), share * most))
    room = most - _width(f"… {tail}")
    head = text[: len(text) - len(end)].rstrip(" :,")
    return f"{str(cut(head, room)).rstrip('…')}… {tail}"


def apart(names: Sequence[object], most: float) -> list[object]:
    """The names cut to ``most`` pixels; those that would read alike keep the end in which they differ."""
    found = [cut(name, most) for name in names]
    for text in {t for t in found if isinstance(t, str) and t.endswith("…")}:
        alike = [n for n, name in enumerate(names) if str(name).startswith(text[:-1])]
        if len({names[n] for n in alike}) > 1:
            for n, end in zip(alike, telling([str(names[n]) for n in alike]), strict=True):
                found[n] = keep_end(names[n], end, most)
    return found


def telling(names: Sequence[str]) -> list[str]:
    """The end of each name in which it differs from the others, from the last mark or word before it."""
    if len(set(names)) < 2:
        return list(names)
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    common = "".join(letters[0] for letters in alike)
    marks = [common.rfind(mark) + len(mark) for mark in _MARKS if mark in common]
    first = len(common) if common in names else max(marks, default=common.rfind(" ") + 1)
    return [name[first:].lstrip(" ,:") or name for name in names]


def _width(text: str) -> float:
    return sum(_LETTERS.get(letter, _LETTER) for letter in text)
