"""Torch's headers, precompiled for the bindings of one build: parsing them is half of a binding's time."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from fusescope.core.machine.toolchain import Toolchain, compilers
from fusescope.kernels.plan import Object

_PER_COMPILER = 4  # bindings; for fewer, all compile sooner than the headers and then the bindings


def headers(folder: Path, missing: list[Object]) -> dict[str, str]:
    """{object file: header that its source begins with}, for bindings of equal flags that are many for the
    number of compilers; paths are relative to ``folder``. A header without a precompiled form is read as
    text."""
    remove(folder)
    groups: dict[tuple[str, ...], list[Object]] = {}
    for item in missing:
        if item.name is None:
            groups.setdefault(item.flags, []).append(item)
    found = {}
    for number, items in enumerate(groups.values()):
        common = items[0].source.parents[1] / "common" / "binding.h"
        if len(items) < _PER_COMPILER * (compilers() or os.cpu_count() or 1) or not common.is_file():
            continue
        header = _folder(folder) / f"torch{number}.h"
        header.parent.mkdir(exist_ok=True)
        header.write_text("\n".join(re.findall(r"#include <torch/.*>", common.read_text())) + "\n")
        found |= {item.file: str(header.relative_to(folder)) for item in items}
    return found


def command(chain: Toolchain, item: Object, header: str) -> str:
    """The shell command that precompiles the header with the item's flags. It never fails: an error in the
    headers is shown by the bindings, each for itself."""
    words = [chain.gxx.path, *item.flags, "-x", "c++-header", header]
    return f"{shlex.join(words)} -o {header}.gch >/dev/null 2>&1 || rm -f {header}.gch; : > {header}.done"


def remove(folder: Path) -> None:
    """80 MB each, and of use only while bindings compile."""
    for file in _folder(folder).glob("torch*.h*"):
        file.unlink(missing_ok=True)


def _folder(folder: Path) -> Path:
    return folder / "ninja"
