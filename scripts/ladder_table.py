"""Writes the tables of cuda/*/README.md and NOTES.md from recorded runs.

    python3 scripts/ladder_table.py            rewrites each table between its marks
    python3 scripts/ladder_table.py --check    names the files that differ from the runs; exit code 1

A table stands between two comments, of which the first says what it holds:

    <!-- ladder: runs=RUN[,RUN] columns=KEY[,KEY] [impls=A,B] [share=bytes|flop] [where=KEY:VALUE] -->
    <!-- /ladder -->

One row for each implementation, one column for each case, named by the values of the keys; of several runs
the last that has a case is taken. Cells are medians in µs of the warm graph time (eager on a CPU); ``share``
adds how much of the ceiling measured in the same run is reached: of the copy rate, or of a large product.
With ``grid=KEY,KEY`` the rows are shapes, the columns masks, and a cell is our fastest attention kernel with
its time and, in brackets, its speed-up over the best of eager, SDPA and FlexAttention and over
FlashAttention-4.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "backend")]

from fusescope.store import folder, library  # noqa: E402

TABLE = re.compile(r"(<!-- ladder: (.*?) -->\n).*?(<!-- /ladder -->)", re.DOTALL)
PEERS = ("eager", "sdpa", "sdpa_math", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "flex", "flex_flash")


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    stale = []
    for file in sorted(ROOT.glob("cuda/*/*.md")):
        text = file.read_text()
        try:
            new = TABLE.sub(lambda m: f"{m[1]}{section(m[2])}\n{m[3]}", text)
        except (ValueError, KeyError) as error:
            sys.exit(f"{file.relative_to(ROOT)}: {error}")
        if new != text:
            stale.append(str(file.relative_to(ROOT)))
            if not arguments:
                file.write_text(new)
    if arguments and stale:
        print(
            f"not what the recorded runs say: {', '.join(stale)}; run scripts/ladder_table.py",
            file=sys.stderr,
        )
    return int(bool(arguments and stale))


def section(spec: str) -> str:
    """A table and the line that says where its figures come from."""
    options = dict(item.split("=", 1) for item in shlex.split(spec))
    runs = [library.find(name) for name in options["runs"].split(",")]
    facts = folder.read(runs[-1]).environment
    cells: dict[str, list] = {}
    for run in runs:
        fresh: dict[str, list] = {}
        for record in in_order(folder.records(run), folder.read(run).spec.get("cases", ())):
            fresh.setdefault(record.case_key, []).append(record)
        cells |= fresh
    wanted = dict(pair.split(":", 1) for pair in options["where"].split(",")) if "where" in options else {}
    records = [
        r for found in cells.values() for r in found if all(str(r.case[k]) == v for k, v in wanted.items())
    ]
    if not records:
        raise ValueError(f"no record: {spec}")
    if "grid" in options:
        lines = grid(records, options["grid"].split(","), options["columns"].split(","))
    else:
        lines = ladder(records, options, facts["ceilings"])
    return "\n".join(["", *lines, "", source(records, [r.name for r in runs], facts), ""])


def in_order(records: list, cases) -> list:
    """The records in the order in which the run was given its cases: a cluster's come as they end."""
    place = {json.dumps(case, sort_keys=True): at for at, case in enumerate(cases)}
    return sorted(records, key=lambda r: place.get(json.dumps(r.case, sort_keys=True), len(place)))


def ladder(records: list, options: dict[str, str], ceilings: dict) -> list[str]:
    impls = options["impls"].split(",") if "impls" in options else None
    cases, rows = {}, {}
    for r in records:
        if impls is None or r.impl in impls:
            column = "×".join(named(r.case[key]) for key in options["columns"].split(","))
            cases[column] = None
            rows.setdefault(r.impl, {})[column] = cell(r, options.get("share"), ceilings)
    return table("µs" + (" (% of ceiling)" if "share" in options else ""), cases, rows)


def grid(records: list, keys: list[str], masks: list[str]) -> list[str]:
    cells: dict[tuple[tuple, str], dict] = {}
    for r in records:
        cells.setdefault((tuple(r.case[k] for k in keys), r.case["mask"]), {})[r.impl] = r
    rows: dict[str, dict[str, str]] = {}
    for (shape, mask), found in sorted(cells.items(), key=lambda item: item[0][0][::-1]):
        ms = {impl: r.ms for impl, r in found.items() if r.status == "ok"}
        ours = min((impl for impl in ms if re.match(r"v\d", impl)), key=ms.__getitem__)
        peer = min(ms[impl] for impl in PEERS if impl in ms)
        over = [peer, ms["flash4"]] if "flash4" in ms else [peer]
        ratios = ", ".join(f"{other / ms[ours]:.2f}" for other in over)
        text = f"{ours.split('_')[0]} {microseconds(ms[ours])} ({ratios})"
        rows.setdefault(", ".join(map(str, shape)), {})[mask] = text
    return table(", ".join(keys), masks, rows)


def table(corner: str, columns, rows: dict[str, dict[str, str]]) -> list[str]:
    head = [f"| {corner} | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    return head + [
        f"| {name} | {' | '.join(row.get(c, '') for c in columns)} |" for name, row in rows.items()
    ]


def named(value) -> str:
    """A value of a case as a heading; of a mask from a file the file's name."""
    text = str(value)
    return Path(text).stem if text.startswith("file:") else text


def cell(r, share: str | None, ceilings: dict) -> str:
    if r.status != "ok":
        return r.status
    if share is None:
        return microseconds(r.ms)
    reached = r.gbps / ceilings["copy_gbps"] if share == "bytes" else None
    if share == "flop":
        unit = "vector_tflops" if r.dtype == "float32" else "matrix_tflops"  # ours use no TF32
        reached = r.tflops.effective / ceilings[unit][r.dtype]
    return f"{microseconds(r.ms)} ({100 * reached:.0f})"


def microseconds(ms: float) -> str:
    us = ms * 1e3
    return f"{us:.0f}" if us >= 100 else f"{us:.3g}"


def source(records: list, runs: list[str], facts: dict) -> str:
    dtypes = ", ".join(dict.fromkeys(r.dtype for r in records))
    return f"{facts['device_name']}, {dtypes}, torch {facts['torch']}; {', '.join(runs)}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
