"""Says which of the runs that ship are not whole; part of `make check`.

    python3 scripts/check_recorded.py [FOLDER]      profiles/recorded where none is given; exit code 1

A run ships when it is done, has a title, and, for a comparison, a record of every implementation on every
case that its specification names, with raw samples of each that has a time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "backend")]

from fusescope.core.errors import RunError  # noqa: E402
from fusescope.core.records import Run  # noqa: E402
from fusescope.store import folder  # noqa: E402


def problems(path: Path) -> Iterator[str]:
    """What keeps a run from shipping, a sentence each."""
    try:
        run = folder.read(path)
    except RunError as error:
        yield f"it cannot be read: {error}"
        return
    if run.status != "done":
        yield f"it is {run.status} ({run.reason or 'no reason given'}), not done"
    if not run.title:
        yield "it has no title"
    if run.kind in ("bench", "model"):
        yield from _missing(path, run)


def _missing(path: Path, run: Run) -> Iterator[str]:
    records = {(r.case_key, r.impl): r for r in folder.records(path)}
    spec = run.spec
    wanted = {*spec["impls"], spec["baseline"]}
    keys = {key for key, _ in records}
    if len(keys) != len(spec["cases"]):
        yield f"it has records of {len(keys)} of its {len(spec['cases'])} cases"
    lacking = [(key, impl) for key in keys for impl in wanted if (key, impl) not in records]
    if lacking:
        yield f"{len(lacking)} records are missing, first {lacking[0][1]} on {lacking[0][0]}"
    sampled = {(s["case_key"], s["impl"]) for s in folder.samples(path)}
    bare = [name for name, r in records.items() if r.status == "ok" and name not in sampled]
    if bare:
        yield f"{len(bare)} times have no raw samples, first {bare[0][1]} on {bare[0][0]}"


def main(arguments: list[str]) -> int:
    home = Path(arguments[0]) if arguments else ROOT / "profiles" / "recorded"
    runs = sorted(home.glob("2*"))
    found = [f"{path.name}: {problem}" for path in runs for problem in problems(path)]
    found += [] if runs else [f"{home} holds no run"]
    print("\n".join(found), file=sys.stderr, end="\n" * bool(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
