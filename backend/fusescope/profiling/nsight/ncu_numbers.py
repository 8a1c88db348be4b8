"""Numbers as Nsight Compute writes them in the locale of its host: 1,234.5 or 1.234,5 or 1 234,5.

ncu follows the environment (LC_ALL=C avoids it), and the file does not say which locale that was: the cells
do, all together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SPACES = re.compile("(?<=\\d)[ \u00a0\u2009\u202f'’\ufffd](?=\\d{3}(?!\\d))")  # between groups of digits
_NONE = {"", "n/a", "nan", "-nan", "inf", "-inf", "infinity", "-infinity"}
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SECONDS = {
    word: factor
    for words, factor in (
        (("s", "sec", "second"), 1e9),
        (("ms", "msec", "msecond"), 1e6),
        (("us", "usec", "usecond"), 1e3),
        (("ns", "nsec", "nsecond"), 1.0),
    )
    for word in words
}
_SCALED = re.compile(
    r"([KMGTP]?)(byte|bit|hz|inst|cycle|block|warp|thread|sector|request)(/.+)?", re.IGNORECASE
)


def _form(group: str, point: str) -> re.Pattern:
    g, p = re.escape(group), re.escape(point)
    return re.compile(
        rf"[-+]?(?:\d+|\d{{1,3}}(?:{g}\d{{2,3}})*{g}\d{{3}})?(?:{p}\d*)?(?:[eE][-+]?\d+)?", re.ASCII
    )


def _sure(group: str, point: str) -> re.Pattern:
    """What only one of the two notations can mean: groups and a point, several groups, a leading zero, or a
    fraction of other than three digits."""
    g, p = re.escape(group), re.escape(point)
    return re.compile(
        rf"[-+]?(?:\d{{1,3}}(?:{g}\d{{3}})+{p}\d+|\d{{1,3}}(?:{g}\d{{3}}){{2,}}|0{p}\d+|\d{{4,}}{p}\d+"
        rf"|\d+{p}(?:\d{{1,2}}|\d{{4,}}))",
        re.ASCII,
    )


_FORMS = {".": _form(",", "."), ",": _form(".", ",")}
_SURE = {".": _sure(",", "."), ",": _sure(".", ",")}


def decimal_sign(cells: Iterable[str]) -> str | None:
    """ "." or ",", whichever more cells prove; None where no cell proves either. ValueError where as many
    prove the one as the other."""
    votes = {".": 0, ",": 0}
    for cell in cells:
        text = _SPACES.sub("", cell.strip())
        for sign, pattern in _SURE.items():
            votes[sign] += pattern.fullmatch(text) is not None
    if votes["."] == votes[","]:
        if votes["."]:
            raise ValueError(
                "its numbers have decimal points and decimal commas alike; export it with LC_ALL=C"
            )
        return None
    return max(votes, key=votes.__getitem__)


def ambiguous(cell: str) -> bool:
    """Whether a cell is one number with a point and another with a comma as decimal sign."""
    text = _SPACES.sub("", cell.strip())
    return re.fullmatch(r"[-+]?[1-9]\d{0,2}[.,]\d{3}", text, re.ASCII) is not None


def number(text: str, unit: str = "", sign: str = ".") -> tuple[float | str | None, str]:
    """A cell in base units (ns, byte, hz …): (4.96e9, "hz") of "4.96", "Ghz"; None for "n/a"; texts stay
    texts. sign: the decimal sign."""
    text, unit = text.strip(), unit.strip()
    if text.lower() in _NONE:
        return None, unit
    plain = _SPACES.sub("", text)
    if not _FORMS[sign].fullmatch(plain) or not any(c.isdigit() for c in plain):
        return text, unit
    value = float(plain.replace("," if sign == "." else ".", "").replace(sign, "."))
    if unit in _SECONDS:
        return value * _SECONDS[unit], "ns"
    match = _SCALED.fullmatch(unit)
    if match:
        return value * _PREFIXES[match[1].upper()], f"{match[2].lower()}{match[3] or ''}"
    return value, unit
