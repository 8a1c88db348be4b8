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


def write(output: Path, *elsewhere: Path) -> None:
    """Put the table that a whole run of the command printed to a file between the marks; rows of classes that
    it skipped come from ``elsewhere``, outputs of the command on other machines.
    """
    said = output.read_text().splitlines()
    table = _rows(said)
    seeds = next(line for line in said if line.startswith("seeds from"))
    cases, lost, wrong, other = (sum(_numbers(table, column)) for column in range(2, 6))
    figures = [
        f"Measured on {_day(output)}, {os.cpu_count()} cores, {seeds}:\n{cases:,} cases; {lost} finished "
        f"records lost, {wrong} wrong states, {other} other faults."
    ]
    for file in elsewhere:
        found = {_title(row): row for row in _rows(file.read_text().splitlines())[2:] if "skipped" not in row}
        new = {title: row for title, row in found.items() if any(_skipped(old, title) for old in table)}
        table = [new.get(_title(row), row) for row in table]
        figures += [f"On another machine, {_day(file)}: {title}." for title in new]
    before, _, rest = FILE.read_text().partition(_BEGIN)
    inside = "\n".join([*figures, "", *table])
    FILE.write_text(f"{before}{_BEGIN}\n{inside}\n{_END}{rest.partition(_END)[2]}")


def _rows(said: list[str]) -> list[str]:
    return [line for line in said if line.startswith("|")]


def _title(row: str) -> str:
    return row.split("|")[1].strip()


def _skipped(row: str, title: str) -> bool:
    return _title(row) == title and "skipped" in row


def _day(output: Path) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(output.stat().st_mtime))


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
