"""The versions of Python packages that the project needs: from requirements.txt of a checkout, else from the
installed package's metadata."""

from __future__ import annotations

import re
from importlib import metadata

from fusescope.core import paths


def requirement(name: str) -> str:
    """What to give pip for a package: "plotly==7.1.0" in a checkout, "plotly>=7.1" of an installed package,
    the bare name where neither lists it."""
    found = (re.match(rf"{re.escape(name)}[=<>~!][^\s;]*", line) for line in _lines())
    return next((match[0] for match in found if match), name)


def needed(missing: list[str]) -> tuple[str, ...]:
    """pip's arguments that install these packages, in a checkout everything else of the app with them."""
    if paths.CHECKOUT:
        return "-r", str(paths.CHECKOUT / "requirements.txt")
    return tuple(map(requirement, missing))


def _lines() -> list[str]:
    if paths.CHECKOUT:
        return (paths.CHECKOUT / "requirements.txt").read_text().splitlines()
    try:
        return metadata.requires("fusescope") or []
    except metadata.PackageNotFoundError:  # copied, not installed
        return []
