"""One call on a GPU box: builds, tests, sanitises and records, and prints a short table last.

    python3 scripts/on_gpu.py --out DIR [--steps build,test,sanitize,record] [--only attention] [--budget-s
    500] python3 scripts/on_gpu.py --plan [--only bert,traverse] [--missing [--on "NVIDIA H200"]] [--budget-s
    1800]

Needs torch >= 2.11 with CUDA, nvcc and ninja; none of the app's own packages. What is recorded lands in
DIR/recorded.tar.gz, to be unpacked under profiles/recorded/; logs next to it. A step that fails is reported
and the next one goes on.

Recording takes as many sessions as it takes, on any box of the same kind: a traverse goes on after the
sessions that lie in --resume's folder (profiles/recorded/, where each archive is unpacked), and with
--missing nothing else is recorded twice. So every session is

    python3 scripts/on_gpu.py --out DIR --steps build,record --missing --budget-s 560 [--gpus 8]

    python3 scripts/on_gpu.py --out DIR --families attention --steps build,parallel --total-s 530
    python3 scripts/on_gpu.py --out DIR --steps cluster,killed,busy --cell-budget-s 0.4

are for a box of two GPUs or more: models over 2, 4, … of them, the attention grid on a cluster of one and of
as many workers, a worker killed in the middle, simulated cases. Their runs are packed likewise.

With --gpus N each entry shares its work among N GPUs, as --cluster local:N does (docs/cluster.md): Dask, the
package distributed, has to be there. With --entry-per-gpu each of them takes an entry of its own instead.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "backend"), str(ROOT / "scripts")]

import record_step  # noqa: E402  next to this file
import several_gpus  # noqa: E402
from record_step import environ, run  # noqa: E402

from fusescope.core import paths  # noqa: E402
from fusescope.core.machine import environment  # noqa: E402

os.environ["PYTHONPATH"] = paths.python_path()  # the box has no installed package; every command is a child


def build(options) -> str:
    words = [w for w in options.families.split(",") if w]
    command = [sys.executable, "-m", "fusescope", "build", *words, "--json"]
    done = run(command, options.out / "build.log", min(550, options.budget_s))
    return f"build: exit {done.returncode}"


def test(options) -> str:
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x" if options.first_failure else "-q",
        "-m",
        "gpu",
        "--timeout",
        "300",
        "tests",
    ]
    done = run(
        words + (["-k", options.only.replace(",", " or ")] if options.only else []),
        options.out / "test.log",
        options.budget_s,
    )
    tail = done.stdout.decode(errors="replace").strip().splitlines()[-25:]
    return "test: exit {}\n{}".format(done.returncode, "\n".join(tail))


def sanitize(options) -> str:
    """compute-sanitizer's tools over the operators' GPU correctness tests; racecheck, which is slow, over
    float16 alone."""
    lines = []
    for tool, which in (("memcheck", "test_ours_on_cuda"), ("racecheck", "test_ours_on_cuda and float16")):
        if options.only:
            which += f" and ({options.only.replace(',', ' or ')})"
        words = [
            "compute-sanitizer",
            "--tool",
            tool,
            "--error-exitcode",
            "9",
            "--print-limit",
            "20",
            sys.executable,
            "-m",
            "pytest",
            "-q",
        ]
        words += [
            "-m",
            "gpu",
            "-k",
            which,
            "--timeout",
            "600",
            "-p",
            "no:cacheprovider",
            "tests/ops/test_every_operator.py",
        ]
        with environ(PYTORCH_NO_CUDA_MEMORY_CACHING="1"):  # one allocation per tensor: its end is seen
            done = run(words, options.out / f"sanitize-{tool}.log", options.budget_s)
        summary = [
            line
            for line in done.stdout.decode(errors="replace").splitlines()
            if "SUMMARY" in line or "passed" in line
        ]
        lines.append(f"{tool}: exit {done.returncode} {' | '.join(summary[-2:])}")
    return "\n".join(lines)


STEPS = {"build": build, "test": test, "sanitize": sanitize, "record": record_step.record}
SEVERAL = {
    "parallel": several_gpus.parallel,
    "cluster": several_gpus.cluster,
    "killed": several_gpus.killed,
    "busy": several_gpus.busy,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder of what comes out; needed for all but --plan")
    parser.add_argument(
        "--plan",
        action="store_true",
        help="print what would be recorded and about how long it takes, and do nothing",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        default=ROOT / "profiles" / "recorded",
        metavar="FOLDER",
        help="earlier recordings, unpacked: sweeps measure what these lack (default profiles/recorded)",
    )
    parser.add_argument(
        "--missing", action="store_true", help="leave out what has a whole run of its title in that folder"
    )
    parser.add_argument(
        "--on",
        metavar="NAME",
        help="the device whose runs count as such (default the one that is there; with --plan any)",
    )
    parser.add_argument(
        "--gpus",
        type=int,
        default=1,
        metavar="N",
        help="share the work of each entry among so many GPUs (default 1)",
    )
    parser.add_argument(
        "--entry-per-gpu", action="store_true", help="each of the --gpus takes an entry of its own"
    )
    parser.add_argument(
        "--device", default="cuda:0", help="cpu: entries for the processor, and trials of all others"
    )
    steps = (*STEPS, *SEVERAL)
    parser.add_argument("--steps", default=",".join(STEPS), help=f"of {', '.join(steps)}")
    parser.add_argument("--families", default="", help="what the step build builds (default all)")
    parser.add_argument(
        "--only", default="", help="words with commas between: tests and recordings whose name holds one"
    )
    parser.add_argument("--budget-s", type=float, default=500, help="seconds a step may take")
    parser.add_argument(
        "--case-budget-s", type=float, default=5.0, help="seconds a case and mode may take (bench --budget)"
    )
    parser.add_argument("--cell-budget-s", type=float, default=0.25, help="the same of the step cluster")
    parser.add_argument("--total-s", type=float, default=1e9, help="seconds that all steps may take together")
    parser.add_argument("--first-failure", action="store_true", help="stop the tests at the first failure")
    options = parser.parse_args()
    known, steps = STEPS | SEVERAL, options.steps.split(",")
    if unknown := set(steps) - set(known):
        parser.error(f"steps are {', '.join(known)}, not {', '.join(sorted(unknown))}")
    if options.gpus < 1:
        parser.error(f"--gpus is a number from 1, not {options.gpus}")
    options.resume = options.resume.resolve()
    if options.plan:
        options.on = options.on or ""
        print(record_step.plan(options))
        return 0
    if options.out is None:
        parser.error("--out names the folder of what comes out")
    needed = max(
        options.gpus if "record" in steps else 0, several_gpus.FEWEST if set(steps) & set(SEVERAL) else 0
    )
    if options.device != "cpu" and len(there := environment.devices()) <= needed:
        parser.error(f"{needed} GPUs are needed; there is {', '.join(there)}")
    if options.on is None:
        options.on = environment.device_name(options.device)
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    begun, budget, reports = time.monotonic(), options.budget_s, []
    for number, step in enumerate(steps):
        started = time.monotonic()
        left = options.total_s - (started - begun)
        later = sum(several_gpus.SHARE.get(s, 0.0) for s in steps[number:])
        share = several_gpus.SHARE.get(step, 1.0) / later if later and step in SEVERAL else 1.0
        options.budget_s = min(budget, share * left)
        try:
            said = known[step](options)
        except Exception as e:  # the next step goes on
            said = f"{step}: {type(e).__name__}: {e}"
        reports.append(f"{said}\n[{step}: {time.monotonic() - started:.0f} s]")
        (options.out / "table.txt").write_text("\n\n".join(reports) + "\n")
    if set(steps) & set(SEVERAL):
        file = record_step.pack(options.out, options.out)
        for folder in ("runs", "killed"):
            shutil.rmtree(options.out / folder, ignore_errors=True)
        reports.append(f"{file.name}: {file.stat().st_size / 2**20:.2f} MiB")
    print("\n\n".join(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
