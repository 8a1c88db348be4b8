"""What the doctor says: one finding a check, and the command that puts it right on this kind of system."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """check: what was looked at; status "ok", "warn" (something is missing, the rest works) or "fail"; fix:
    the exact command or edit, None where nothing is to be done."""

    check: str
    status: str
    says: str
    fix: str | None = None


def install(apt: str, dnf: str) -> str:
    """The line that installs system packages here."""
    return (
        f"sudo dnf install {dnf}"
        if shutil.which("dnf") and not shutil.which("apt-get")
        else f"sudo apt-get install {apt}"
    )


def pip(*packages: str) -> str:
    """The line that installs Python packages into the environment that runs this."""
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])
