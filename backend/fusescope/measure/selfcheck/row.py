"""One line of a self-check's table."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """``figure``: what was found, in words and numbers; ``limit``: what is asked for. passed: None where the
    part could not be done, or its answer lies in the noise; ``note`` says why, or names what failed."""

    part: str
    check: str
    figure: str
    limit: str
    passed: bool | None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON values, percentages as the project writes them: "2 %"."""
        found = dataclasses.asdict(self)
        return {k: v.replace("%", " %") if isinstance(v, str) else v for k, v in found.items()}


def missing(part: str, check: str, limit: str, why: str) -> Row:
    """A part that cannot be done here."""
    return Row(part, check, "n/a", limit, None, why)
