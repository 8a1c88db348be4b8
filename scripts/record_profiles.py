"""Record the profiles of scripts/profiles.toml on a GPU box: traces with telemetry, and Nsight Compute where
it is installed.

    python3 scripts/record_profiles.py --out DIR [--only WORD,WORD] [--gpus 8] [--budget-s 400]

Needs torch >= 2.11 with CUDA, transformers for the models, nvcc and ninja. With --gpus the profiles are
spread over that many GPUs of the box, one job on each at a time. What is recorded lands in
DIR/profiles.tar.gz, to be unpacked under profiles/recorded/; afterwards, where pyarrow was missing, on any
machine that has it: python scripts/profile_tables.py. A profile that fails is named, and the next one goes
on.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import sys
import tarfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 300 << 10
"""Largest file of a recorded run; a larger one is left out and named."""
_WORK = {"request.json", "tool-output.txt", "report.ncu-rep", "report.nsys-rep"}
"""Intermediate artifacts: their contents are in the tables."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", default="", help="words separated by commas: profiles whose title or kind contains one"
    )
    parser.add_argument(
        "--gpus", type=int, default=1, help="how many GPUs of the box are used; 0: the CPU, for a trial"
    )
    parser.add_argument("--budget-s", type=float, default=400, help="seconds in all")
    options = parser.parse_args()
    home = options.out.resolve() / "work"
    home.mkdir(parents=True, exist_ok=True)
    os.environ["FUSESCOPE_PROFILES"] = str(home)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.path[:0] = [str(ROOT), str(ROOT / "backend")]
    devices = [f"cuda:{n}" for n in range(options.gpus)] or ["cpu"]
    done = record_all(wanted(options.only), devices, time.monotonic() + options.budget_s)
    for run in sorted(home.glob("2*")):
        if run.name in done:
            trim(run)
        else:
            shutil.rmtree(run)  # what failed is named above, and is no recording
    with tarfile.open(options.out / "profiles.tar.gz", "w:gz") as archive:
        for run in sorted(home.glob("2*")):
            archive.add(run, run.name)
    shutil.rmtree(home)
    return 0


def wanted(only: str) -> list[dict]:
    """The entries of profiles.toml whose title or kind holds one of the words."""
    entries = tomllib.loads((ROOT / "scripts" / "profiles.toml").read_text())["profile"]
    return [
        e
        for e in entries
        if any(word.strip() in f"{e['title']} {e['kind']}".lower() for word in only.lower().split(","))
    ]


def record_all(entries: list[dict], devices: list[str], end: float) -> set[str]:
    """All of them, one on each device at a time; a line is printed as each ends. Gives the ids of those that
    are done."""
    free: SimpleQueue[str] = SimpleQueue()
    for name in devices:
        free.put(name)
    done: set[str] = set()

    def one(entry: dict) -> None:
        device = free.get()
        try:
            print(record(entry, device, done, end), flush=True)
        finally:
            free.put(device)

    with ThreadPoolExecutor(len(devices)) as pool:
        for _ in pool.map(one, entries):
            pass
    return done


def record(entry: dict, device: str, done: set[str], end: float) -> str:
    """One job, waited for; a line on how it ended."""
    from fusescope.core.errors import RunError
    from fusescope.jobs import submit

    left = end - time.monotonic()
    if left < 10:
        return f"-- {entry['title']}: no time left"
    spec = entry["spec"] | {"device": device, "deadline_s": left}
    started = time.monotonic()
    try:
        run = submit.wait(submit.submit(entry["kind"], spec, title=entry["title"]), left)
    except (ValueError, TypeError, RunError, OSError) as error:
        return f"-- {entry['title']}: {error}"
    if run.live:
        submit.cancel(run.id)
        return f"-- {entry['title']} [{run.id}]: no end within its time"
    if run.status == "done":
        done.add(run.id)
    took = time.monotonic() - started
    mark = "==" if run.status == "done" else "--"
    ended = f"{run.status} on {device} in {took:.0f} s: {run.reason or run.progress.message}"
    return f"{mark} {entry['title']} [{run.id}] {ended}"


def trim(run: Path) -> None:
    """Keep what a page shows; records and samples packed, as recordings are kept."""
    for file in sorted((run / "artifacts").glob("*")):
        if file.name in _WORK:
            file.unlink()
        elif file.stat().st_size > MOST_BYTES:
            print(f"   {run.name}: {file.name} left out, {file.stat().st_size >> 10} KiB")
            file.unlink()
    for name in ("results.jsonl", "samples.jsonl"):
        file = run / name
        if file.is_file():
            file.with_name(name + ".gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
            file.unlink()


if __name__ == "__main__":
    sys.exit(main())
