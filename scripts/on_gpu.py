"""One call on a GPU box: builds, tests, sanitises and records, and prints a short table last.

    python3 scripts/on_gpu.py --out DIR [--steps build,test,sanitize,record] [--only attention] [--budget-s 500]

Needs torch >= 2.11 with CUDA, nvcc and ninja; none of the app's own packages. What is recorded lands in DIR/recorded.tar.gz, to be
unpacked under profiles/recorded/; logs beside it. A step that fails is reported and the next one goes on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = ("build", "test", "sanitize", "record")


def run(words: list[str], log: Path, timeout: float) -> subprocess.CompletedProcess:
    """The command with its output in the log; standard output is returned too. A command past its time is killed and says so."""
    started = time.monotonic()
    with log.open("ab") as out:
        out.write(f"\n$ {' '.join(words)}\n".encode())
        out.flush()
        try:
            done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=out, timeout=timeout, check=False)
        except subprocess.TimeoutExpired as late:
            done = subprocess.CompletedProcess(words, 124, late.stdout or b"")
        out.write(done.stdout)
        out.write(f"[exit {done.returncode} after {time.monotonic() - started:.1f} s]\n".encode())
    return done


def build(options) -> str:
    done = run([sys.executable, "-m", "backend", "build", "--json"], options.out / "build.log", 550)
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
        words + (["-k", options.only.replace(",", " or ")] if options.only else []), options.out / "test.log", options.budget_s
    )
    tail = done.stdout.decode(errors="replace").strip().splitlines()[-25:]
    return "test: exit {}\n{}".format(done.returncode, "\n".join(tail))


def sanitize(options) -> str:
    """compute-sanitizer's tools over the operators' GPU correctness tests; racecheck, which is slow, over float16 alone."""
    lines = []
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # one allocation a tensor, so that the end of a tensor is seen
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
        words += ["-m", "gpu", "-k", which, "--timeout", "600", "-p", "no:cacheprovider", "tests/ops/test_every_operator.py"]
        done = run(words, options.out / f"sanitize-{tool}.log", options.budget_s)
        summary = [line for line in done.stdout.decode(errors="replace").splitlines() if "SUMMARY" in line or "passed" in line]
        lines.append(f"{tool}: exit {done.returncode} {' | '.join(summary[-2:])}")
    del os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"]
    return "\n".join(lines)


def record(options) -> str:
    profiles = options.out / "work"
    os.environ["FUSESCOPE_PROFILES"] = str(profiles)
    profiles.mkdir(parents=True, exist_ok=True)
    table, started = [], time.monotonic()
    for entry in tomllib.loads((ROOT / "scripts" / "recordings.toml").read_text())["run"]:
        name = entry["title"].lower() + " " + entry["bench"][0]
        if options.only and not any(word in name for word in options.only.split(",")):
            continue
        words = [
            sys.executable,
            "-m",
            "backend",
            "bench",
            *entry["bench"],
            "--device",
            "cuda:0",
            "--json",
            "--title",
            entry["title"],
        ]
        words += ["--budget", str(options.case_budget_s)]
        for mask in entry.get("masks", ()):
            words += ["--mask", mask]
        left = options.budget_s - (time.monotonic() - started)
        if left < 20:
            table.append(f"-- {entry['title']}: no time left")
            continue
        done = run(words, options.out / "record.log", left)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            table.append(f"-- {entry['title']}: exit {done.returncode}, no answer")
            continue
        table.append(f"== {entry['title']} [{answer['run']}]")
        table += [line(r) for r in answer["records"]]
    if not options.only:
        table.append(trace())
    for folder in profiles.iterdir():
        if (folder / "run.json").is_file():
            compress(folder)
    with tarfile.open(options.out / "recorded.tar.gz", "w:gz") as archive:
        for folder in sorted(profiles.glob("2*")):
            archive.add(folder, folder.name)
    shutil.rmtree(profiles)
    return "\n".join(table)


def trace() -> str:
    """One recorded Chrome trace, of the newest attention kernel."""
    sys.path.insert(0, str(ROOT))
    from backend.jobs import submit

    case = {"batch": 16, "seq": 2048, "heads": 12, "head_dim": 64, "mask": "bigbird"}
    spec = {"op": "attention", "impl": "auto", "case": case, "dtype": "float16", "device": "cuda:0"}
    done = submit.wait(submit.submit("trace", spec, title="Trace of attention fp16 (16, 2048), BigBird"), 120)
    return f"== {done.title} [{done.id}] {done.status} {done.reason or ''}"


def compress(folder: Path) -> None:
    """results and samples as .gz, as recordings are kept."""
    for name in ("results.jsonl", "samples.jsonl"):
        file = folder / name
        if file.is_file():
            file.with_name(name + ".gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
            file.unlink()


def line(r: dict) -> str:
    case = ",".join(str(v) for v in r["case"].values())
    if r["status"] != "ok":
        return f"{r['impl']:>18} {case[:60]:60} {r['status']}: {(r['reason'] or '')[:70]}"
    graph, speed = r["time_ms"].get("graph"), r.get("speedup")
    ms = f"{graph['median'] * 1000:9.1f} us" if graph else f"{r['time_ms']['eager']['median'] * 1000:9.1f} us eager"
    speed_text = f"{speed['median']:6.2f}x [{speed['low']:.2f},{speed['high']:.2f}] {speed['verdict']}" if speed else ""
    rate = r.get("tflops") or {}
    return (
        f"{r['impl']:>18} {case[:60]:60} {ms} {speed_text} {rate.get('effective') or 0:7.1f} TF/s {r.get('gbps') or 0:7.0f} GB/s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--only", default="", help="words with commas between: tests and recordings whose name holds one")
    parser.add_argument("--budget-s", type=float, default=500, help="seconds a step may take")
    parser.add_argument("--case-budget-s", type=float, default=5.0, help="seconds a case and mode may take (bench --budget)")
    parser.add_argument("--first-failure", action="store_true", help="stop the tests at the first failure")
    options = parser.parse_args()
    steps = options.steps.split(",")
    if unknown := set(steps) - set(STEPS):
        parser.error(f"steps are {', '.join(STEPS)}, not {', '.join(sorted(unknown))}")
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    reports = []
    for step in steps:
        started = time.monotonic()
        reports.append(f"{globals()[step](options)}\n[{step}: {time.monotonic() - started:.0f} s]")
    print("\n\n".join(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
