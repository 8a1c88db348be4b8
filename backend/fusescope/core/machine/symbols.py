"""C++ symbols as people read them, and the line of our sources that declares one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path


def demangle(names: list[str]) -> list[str]:
    """C++ names in one call of c++filt; unchanged where it is missing."""
    plain = demangle_text("\n".join(names)).splitlines()
    return plain if len(plain) == len(names) else names


def demangle_text(text: str) -> str:
    """Any text with every mangled name in it demangled; unchanged where c++filt is missing."""
    try:
        done = subprocess.run(["c++filt"], input=text, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return text
    return done.stdout if done.returncode == 0 else text


def declaration(plain: str, files: Iterable[Path]) -> str | None:
    """ "cuda/add/add.cuh:12", the first line that declares the function of this demangled name; None where
    none does."""
    name = re.escape(re.sub(r"<.*", "", plain.split("(")[0]).split("::")[-1].split(" ")[-1])
    for file in files:
        text = file.read_text(errors="replace")
        # a declaration: type, name, parameters, then ";" and not a body; comments aside
        for match in re.finditer(
            rf"^(?!\s*//)(?!\s*return\b)[^\n=]*[\w>*&]\s+[*&]*{name}\s*\([^;{{}}]*\)[^;{{}}=]*;",
            text,
            re.MULTILINE,
        ):
            line = text[: match.start()].count("\n") + 1
            return f"{'/'.join(file.parts[-3:])}:{line}"
    return None
