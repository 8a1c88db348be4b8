"""python -m tests.faults: every class of faults for its share of a time, as a table; exit code 1 where any
was found.

--only kills,torn_bytes   these classes        --only kills:71   one case again, by its seed, in this process
--seed N                  the first seed       --budget S        seconds for all (780)
--document FILE [FILE …]  put the output of a whole run, kept in FILE, into docs/reliability.md; rows of
                          classes that it skipped come from outputs of other machines
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fusescope.core import paths
from tests.faults import document, runner

BUDGET_S = 780.0
_PROCESSES = 2 + min(2, os.cpu_count() or 1)  # much of a case is waiting for other processes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--only", default="", metavar="CLASS[:SEED],…")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="SECONDS")
    parser.add_argument("--processes", type=int, default=_PROCESSES)
    parser.add_argument("--most", type=int, help="cases of each class at most")
    parser.add_argument("--list", action="store_true", help="the classes")
    outputs = "outputs, for docs/reliability.md"
    parser.add_argument("--document", type=Path, metavar="FILE", nargs="+", help=outputs)
    parser.add_argument("--cases", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--at", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(runner.to_json(_one(given)))
        return 0
    if given.document:
        document.write(*given.document)
        return 0
    if given.list:
        print("\n".join(f"{name:16} {runner.load(name).TITLE}" for name in runner.names()))
        return 0
    name, again, seed = given.only.partition(":")
    if again:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
            results = [runner.attempt(name, int(seed), 0.0, Path(at), 1)]
    else:
        results = _all(given)
    print(runner.table(results))
    return 0 if all(r.good for r in results) else 1


def _build_kernels() -> None:
    """In a fresh checkout the first jobs would compile for minutes, and that time is no case's."""
    begin = time.monotonic()
    build = [sys.executable, "-m", "fusescope", "build", "--json"]
    done = subprocess.run(build, cwd=paths.ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the kernels of the CPU do not build: {done.stderr.strip() or done.stdout[-2000:]}")
    print(f"kernels of the CPU built: {time.monotonic() - begin:.0f} s", flush=True)


def _one(given: argparse.Namespace) -> runner.Result:
    return runner.attempt(given.one, given.seed, given.budget, given.at, given.most, given.cases)


def _all(given: argparse.Namespace) -> list[runner.Result]:
    chosen = given.only.split(",") if given.only else runner.names()
    if unknown := set(chosen) - set(runner.names()):
        known = ", ".join(runner.names())
        sys.exit(f"no class of faults is called {', '.join(sorted(unknown))}; there are {known}")
    _build_kernels()
    begin, results = time.monotonic(), []
    busy = f"load {os.getloadavg()[0]:.0f} from other work"
    print(
        f"seeds from {given.seed} on, {given.budget:.0f} s, {given.processes} at a time, {busy}", flush=True
    )
    whole = not given.only and given.most is None
    for result in runner.run(chosen, given.seed, given.budget, given.processes, given.most, whole):
        results.append(runner.enough(result) if whole else result)
        said = result.skipped or f"{result.cases:,} cases, {len(result.found)} faults, {result.seconds:.0f} s"
        print(f"{result.name:16} {said}", flush=True)
        for bar, seed, text in result.found:
            print(f"  --only {result.name}:{seed}  {bar}: {text.strip()}", flush=True)
    print(f"\n{time.monotonic() - begin:.0f} s\n")
    return results


if __name__ == "__main__":
    sys.exit(main())
