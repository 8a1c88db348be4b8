"""One call on a GPU box: builds, tests, sanitises and records, and prints a short table last.

    python3 scripts/on_gpu.py --out DIR [--steps build,test,sanitize,record] [--only attention] [--budget-s 500]
    python3 scripts/on_gpu.py --plan [--only bert,traverse] [--missing] [--budget-s 1800]

Needs torch >= 2.11 with CUDA, nvcc and ninja; none of the app's own packages. What is recorded lands in DIR/recorded.tar.gz, to be
unpacked under profiles/recorded/; logs beside it. A step that fails is reported and the next one goes on.

Recording takes as many sittings as it takes, on any box of the same kind: a traverse goes on after the sittings that lie in --resume's
folder (profiles/recorded/, where each archive is unpacked), and with --missing nothing else is recorded twice. So every sitting is

    python3 scripts/on_gpu.py --out DIR --steps build,record --missing --budget-s 560
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = ("build", "test", "sanitize", "record")
VERBS = ("bench", "model", "traverse", "search")
"""What an entry of recordings.toml may be: the name of its one key with the verb's words."""
STOP_S = 40.0
"""What an interrupted command gets to end by itself."""


def run(command: list[str], log: Path, timeout: float) -> subprocess.CompletedProcess:
    """The command with its output in the log; standard output is returned too. A command past its time is interrupted, as by
    Ctrl-C, so that a job ends and what it measured is answered; one that does not end then is killed."""
    started = time.monotonic()
    with log.open("ab") as out:
        out.write(f"\n$ {' '.join(command)}\n".encode())
        out.flush()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=out)
        try:
            text, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                text, _ = process.communicate(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                text, _ = process.communicate()
        out.write(text)
        out.write(f"[exit {process.returncode} after {time.monotonic() - started:.1f} s]\n".encode())
    return subprocess.CompletedProcess(command, process.returncode, text)


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
    """The entries of recordings.toml that were asked for and still fit into the time, each a verb of the command line.

    Traverses go on after the sittings that are already recorded, and are stopped in time; anything else is begun only where there
    is time for most of it.
    """
    profiles = options.out / "work"
    os.environ["FUSESCOPE_PROFILES"] = str(profiles)
    (profiles / "recorded").mkdir(parents=True, exist_ok=True)
    table, started = [], time.monotonic()
    for entry in wanted(options):
        title, before, share = entry["title"], *left_over(entry, options)
        left = options.budget_s - (time.monotonic() - started)
        need = 0.7 * share * entry["seconds"]
        need = min(need, 60) if "traverse" in entry else need
        if left < need:
            table.append(f"-- {title}: about {share * entry['seconds']:.0f} s are needed, {max(0, left):.0f} are left")
            continue
        for folder in before:
            shutil.copytree(folder, profiles / "recorded" / folder.name, dirs_exist_ok=True)
        done = run(words(entry, options, left, before), options.out / "record.log", left)
        try:
            table += summary(entry, json.loads(done.stdout))
        except ValueError:
            table.append(f"-- {title}: exit {done.returncode}, no answer; see record.log")
    if not options.only:
        table.append(trace())
    for folder in profiles.glob("2*"):
        if (folder / "run.json").is_file():
            compress(folder)
    with tarfile.open(options.out / "recorded.tar.gz", "w:gz") as archive:
        for folder in sorted(profiles.glob("2*")):
            archive.add(folder, folder.name)
    shutil.rmtree(profiles)
    return "\n".join(table)


def plan(options) -> str:
    """What ``record`` would do and about how long it takes, without doing it."""
    lines, total = [], 0.0
    for entry in wanted(options):
        before, share = left_over(entry, options)
        total += share * entry["seconds"]
        late = "  beyond the time" if total > options.budget_s else ""
        after = f"  {1 - share:.0%} are there, in {len(before)} sittings" if before else ""
        lines.append(f"{share * entry['seconds']:6.0f} s {total:7.0f} s  {verb(entry):9} {entry['title']}{after}{late}")
    return "\n".join([" alone    in all", *lines, f"{len(lines)} entries, {total / 60:.0f} minutes"])


def wanted(options) -> list[dict]:
    """The entries that hold one of the words of --only, and with --missing those that are not whole in --resume's folder."""
    found = []
    for entry in entries():
        name = f"{entry['title']} {verb(entry)} {entry[verb(entry)][0]}".lower()
        if options.only and not any(word.lower() in name for word in options.only.split(",")):
            continue
        if not left_over(entry, options)[1] or (options.missing and recorded(entry, options)):
            continue
        found.append(entry)
    return found


def entries() -> list[dict]:
    return tomllib.loads((ROOT / "scripts" / "recordings.toml").read_text())["run"]


def verb(entry: dict) -> str:
    return next(v for v in VERBS if v in entry)


def words(entry: dict, options, left: float, before: list[Path]) -> list[str]:
    """The command of an entry that has ``left`` seconds and goes on after these runs."""
    name = verb(entry)
    found = [sys.executable, "-m", "backend", name, *entry[name], "--device", options.device, "--json", "--title", entry["title"]]
    for mask in entry.get("masks", ()):
        found += ["--mask", mask]
    if name in ("bench", "model"):
        found += ["--budget", str(options.case_budget_s)]
    if name == "traverse":
        found += ["--fresh", "--deadline", f"{left - 15:.0f}"]
        found += ["--after", ",".join(folder.name for folder in before)] if before else []
    return found


def left_over(entry: dict, options) -> tuple[list[Path], float]:
    """(the sittings of a traverse that are recorded, the share of its schemes that no record has); ([], 1) of anything else.

    What counts is the setting, not the title, so an earlier traverse of fewer schemes is a sitting, too.
    """
    if "traverse" not in entry:
        return [], 1.0
    sys.path.insert(0, str(ROOT))
    from backend.search import traverse
    from backend.search.setting import OP, of_spec
    from backend.store import folder

    spec = parsed(entry, options.device)
    codes = set(traverse.codes(spec["ranges"], None, spec["seed"]))
    before, there = [], set()
    for path in sorted(options.resume.glob("*-traverse-*")):
        if of_spec(folder.read(path).spec) == of_spec(spec):
            before.append(path)
            there |= {r.impl for r in folder.records(path) if r.op == OP}
    count = min(len(codes), spec["limit"] or len(codes))
    return before, max(0, count - len(codes & there)) / count


def parsed(entry: dict, device: str) -> dict:
    """The job that the entry's words ask for, as the verb itself reads them."""
    sys.path.insert(0, str(ROOT))
    from backend import cli

    name = verb(entry)
    typed = [*entry[name], "--device", device, *(w for mask in entry.get("masks", ()) for w in ("--mask", mask))]
    part, parser = cli.load(name), argparse.ArgumentParser()
    part.arguments(parser, typed)
    spec = part.specify(parser.parse_args(typed))
    return spec if isinstance(spec, dict) else spec.to_json()


def recorded(entry: dict, options) -> bool:
    """Whether a whole run of this title lies in --resume's folder."""
    for path in options.resume.glob(f"*-{verb(entry)}-*"):
        title = json.loads((path / "notes.json").read_text())["title"] if (path / "notes.json").is_file() else ""
        if title == entry["title"] and json.loads((path / "run.json").read_text())["status"] == "done":
            return True
    return False


def summary(entry: dict, answer: dict) -> list[str]:
    """The lines of the table for what a verb answered."""
    lines = [f"== {entry['title']} [{answer['run']}]"]
    if "traverse" in entry:
        lines += [f"{answer['measured']} schemes, {len(answer['failures'])} failed"]
        return lines + [f"{r['code']:>18} {1e3 * (r['ms'] or 0):9.2f} us" for r in (*answer["best"][:3], *answer["baselines"])]
    if "search" in entry:
        best = answer["result"] or {"code": answer["reason"], "ms": 0, "speedups": {}}
        gains = [f"{s['median']:.3f}x {name} {s['verdict']}" for name, s in best["speedups"].items() if s]
        return [*lines, f"{best['code']:>18} {1e3 * best['ms']:9.2f} us after {len(answer['history'])}; {', '.join(gains)}"]
    return lines + [line(r) for r in answer["records"]]


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
    parser.add_argument("--out", type=Path, help="folder of what comes out; needed for all but --plan")
    parser.add_argument(
        "--plan", action="store_true", help="print what would be recorded and about how long it takes, and do nothing"
    )
    parser.add_argument("--resume", type=Path, default=ROOT / "profiles" / "recorded", metavar="FOLDER",
                        help="earlier recordings, unpacked: traverses measure what these have not (default profiles/recorded)")  # fmt: skip
    parser.add_argument("--missing", action="store_true", help="leave out what has a whole run of its title in that folder")
    parser.add_argument("--device", default="cuda:0", help="for a trial elsewhere: cpu")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--only", default="", help="words with commas between: tests and recordings whose name holds one")
    parser.add_argument("--budget-s", type=float, default=500, help="seconds a step may take")
    parser.add_argument("--case-budget-s", type=float, default=5.0, help="seconds a case and mode may take (bench --budget)")
    parser.add_argument("--first-failure", action="store_true", help="stop the tests at the first failure")
    options = parser.parse_args()
    steps = options.steps.split(",")
    if unknown := set(steps) - set(STEPS):
        parser.error(f"steps are {', '.join(STEPS)}, not {', '.join(sorted(unknown))}")
    options.resume = options.resume.resolve()
    if options.plan:
        print(plan(options))
        return 0
    if options.out is None:
        parser.error("--out names the folder of what comes out")
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
