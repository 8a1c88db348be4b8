"""Text from anywhere, made harmless for the program that shows it next."""

from __future__ import annotations

import re

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1: escape sequences, carriage return, backspace
    "\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069"  # turn the direction of writing
    "\u2028\u2029\ufeff\ud800-\udfff]"  # separators of lines and paragraphs; no characters at all
)
_FORMULA = re.compile(r"^[\s\x00]*[=+\-@\uff0b\uff0d\uff1d\uff20]|^[\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def printable(text: str) -> str:
    """The text for a terminal: what would move the cursor, set the clipboard or turn the direction of writing
    is spelled out (\\x1b); line ends and tabs stay."""
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def cell(text: str) -> str:
    """The text for a cell of a CSV file: one that a spreadsheet takes for a formula gets an apostrophe before
    it (OWASP, "CSV Injection"); a number stays a number."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
