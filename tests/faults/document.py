"""docs/reliability.md: its figures are written by the command, and the tests it names are there."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from fusescope.core.paths import ROOT
from tests.faults import runner

FILE = ROOT / "docs" / "reliability.md"
_BEGIN, _END = "<!-- figures of make test-faults -->", "<!-- end of figures -->"


def write(output: Path) -> None:
    """Put the table that a whole run of the command printed to a file between the marks."""
    said = output.read_text().splitlines()
    table = [line for line in said if line.startswith("|")]
    seeds = next(line for line in said if line.startswith("seeds from"))
    when = time.strftime("%Y-%m-%d", time.gmtime(output.stat().st_mtime))
    cases, lost, wrong, other = (sum(_numbers(table, column)) for column in range(2, 6))
    first = (
        f"Measured on {when}, {os.cpu_count()} cores, {seeds}:\n{cases:,} cases; {lost} finished records "
        f"lost, {wrong} wrong states, {other} other faults."
    )
    before, _, rest = FILE.read_text().partition(_BEGIN)
    figures = "\n".join([first, "", *table])
    FILE.write_text(f"{before}{_BEGIN}\n{figures}\n{_END}{rest.partition(_END)[2]}")


def _numbers(table: list[str], column: int) -> list[int]:
    """A column's numbers, without those of classes that were skipped; "70 (of 300)" is 70."""
    cells = [row.split("|")[column].strip().replace(",", "").partition(" ")[0] for row in table[2:]]
    return [int(cell) for cell in cells if cell.isdigit()]


def problems() -> list[str]:
    """What the document says that is not so: a test that does not exist, a class that the table lacks."""
    text = FILE.read_text()
    found = []
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        if not (ROOT / file).is_file():
            found.append(f"there is no {file}")
        elif name and f"def {name}(" not in (ROOT / file).read_text():
            found.append(f"{file} has no {name}")
    promises = re.search(r"## What holds\n(.*?)\n## ", text, re.DOTALL)
    for line in re.findall(r"^- .*?(?=^- |\Z)", promises[1] if promises else "", re.MULTILINE | re.DOTALL):
        if "`tests/" not in line:
            found.append(f"a promise without a test: {line.strip()[:80]}")
    if not promises:
        found.append("there is no section 'What holds'")
    figures = text.partition(_BEGIN)[2].partition(_END)[0]
    found += [f"no figures of {n}" for n in runner.names() if f"| {runner.load(n).TITLE} |" not in figures]
    return found
