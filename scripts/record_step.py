"""The step ``record`` of on_gpu.py: entries of recordings.toml measured, and packed.

What comes back is packed before the time is over, whatever became of the workers.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import gzip
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import recordings

ROOT = Path(__file__).resolve().parents[1]
STOP_S = 12.0
"""What an interrupted command gets to end by itself; a job that is cancelled is given five seconds."""
PACK_S = 35.0
"""Of the time for recording what is kept for such ends and for packing."""
_NEED = 0.7  # of its seconds: with less time than that an entry is not begun
_NEED_TRAVERSE_S = 60.0


def run(
    command: list[str],
    log: Path,
    timeout: float,
    environment: dict[str, str] | None = None,
    stop_s: float = 40.0,
) -> subprocess.CompletedProcess:
    """The command with its output in the log; standard output is returned too. A command past its time is
    interrupted, as by Ctrl-C, so that a job ends and what it measured is answered; one that does not end
    within ``stop_s`` is killed."""
    started = time.monotonic()
    with log.open("ab") as out:
        out.write(f"\n$ {' '.join(command)}\n".encode())
        out.flush()
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=out)
        try:
            text, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                text, _ = process.communicate(timeout=stop_s)
            except subprocess.TimeoutExpired:
                process.kill()
                text, _ = process.communicate()
        out.write(text)
        out.write(f"[exit {process.returncode} after {time.monotonic() - started:.1f} s]\n".encode())
    return subprocess.CompletedProcess(command, process.returncode, text)


def record(options) -> str:
    """The entries of recordings.toml that were asked for and still fit into the time, each a verb of the
    command line. One after the other, where several GPUs share the work of each as a cluster; or each GPU
    takes the next entry as soon as it is free (``entry_per_gpu``). What comes back is packed before the time
    is over, whatever became of the jobs."""
    until, work = time.monotonic() + options.budget_s - PACK_S, options.out / "work"
    (work / "runs" / "recorded").mkdir(parents=True, exist_ok=True)
    entries = iter(wanted(options))  # shared: each taker gets the next one
    takers = range(options.gpus) if options.entry_per_gpu else [None]
    with concurrent.futures.ThreadPoolExecutor(len(takers)) as pool:
        parts = list(pool.map(lambda gpu: _take(entries, work / "runs", options, until, gpu), takers))
    table = [line for lines, _ in parts for line in lines]
    left_out = [line for _, lines in parts for line in lines]
    if not options.only and until - time.monotonic() > 60:
        with environ(FUSESCOPE_PROFILES=str(work / "runs")):
            table.append(trace())
    pack(work, options.out)
    shutil.rmtree(work, ignore_errors=True)  # a run that did not stop may still write there
    return "\n".join(table + left_out)


def _take(
    entries: Iterator[recordings.Entry], home: Path, options, until: float, gpu: int | None
) -> tuple[list[str], list[str]]:
    """Entries until there is none; ``gpu``: the only one they see, by its index, or None where
    all GPUs share each. Answers the table's lines, and a line for each entry that the time is too short
    for."""
    table, left_out = [], []
    share = 1 if gpu is not None else options.gpus
    for entry in entries:
        left = until - time.monotonic()
        try:
            if left >= _least(entry, share):
                table += _one(entry, home, options, left, share, gpu)
            else:
                left_out.append(
                    f"-- {entry.title}: about {entry.seconds(share):.0f} s are left for another call"
                )
        except Exception as e:  # the next one goes on
            table.append(f"-- {entry.title}: {type(e).__name__}: {e}")
    return table, left_out


def _least(entry: recordings.Entry, gpus: int) -> float:
    """Seconds with fewer than which an entry is not begun; a traverse is worth beginning with a minute."""
    seconds = _NEED * entry.seconds(gpus)
    return min(seconds, _NEED_TRAVERSE_S) if entry.traverse else seconds


def _one(entry: recordings.Entry, home: Path, options, left: float, share: int, gpu: int | None) -> list[str]:
    """One entry's lines of the table; ``share``: how many GPUs share its work."""
    for folder in entry.before:
        shutil.copytree(folder, home / "recorded" / folder.name, dirs_exist_ok=True)
    words = entry.words(left - 5, options.case_budget_s, share)
    environment = os.environ | {"FUSESCOPE_PROFILES": str(home)}
    log = options.out / "record.log"
    if gpu is not None:
        environment |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(gpu)}
        log = log.with_stem(f"record-{gpu}")
    begun = time.monotonic()
    done = run(words, log, left, environment, STOP_S)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return [f"-- {entry.title}: exit {done.returncode}, no answer; see {log.name}"]
    first, *more = summary(entry, answer)
    return [f"{first} {time.monotonic() - begun:.0f} s", *more]


def pack(work: Path, out: Path) -> Path:
    """The runs in the folders of ``work``, compressed, as out/recorded.tar.gz."""
    file = out / "recorded.tar.gz"
    with tarfile.open(file, "w:gz", compresslevel=1) as archive:  # what it holds is compressed
        for folder in sorted(work.glob("*/2*"), key=lambda folder: folder.name):
            if (folder / "run.json").is_file():
                folder = whole(folder)
                compress(folder)
                archive.add(folder, folder.name)
    return file


@contextlib.contextmanager
def environ(**values: str):
    """These environment variables for a while."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def plan(options) -> str:
    """What ``record`` would do, and when, by the estimates; nothing is done."""
    lines, beyond, end = [], [], options.budget_s - PACK_S
    share = 1 if options.entry_per_gpu else options.gpus
    free = [0.0] * (options.gpus if options.entry_per_gpu else 1)  # when each taker has its next entry
    for entry in wanted(options):
        now, seconds = min(free), entry.seconds(share)
        what = f"{entry.verb:9} {entry.title}"
        if end - now < _least(entry, share):
            beyond.append((seconds, what))
            continue
        there = f"  {1 - entry.share:.0%} are there, in {len(entry.before)} sessions" if entry.before else ""
        until = min(now + seconds, end)
        lines.append(f"{now:6.0f} to {until:5.0f} s  {what}{there}")
        free[free.index(now)] = until
    if beyond:
        lines.append(f"beyond the time, {sum(s for s, _ in beyond):.0f} s:")
        lines += [f"about {seconds:8.0f} s  {what}" for seconds, what in beyond]
    return "\n".join([*lines, f"done after {max(free):.0f} of {options.budget_s:.0f} s"])


def wanted(options) -> list[recordings.Entry]:
    given = options.resume, options.device, options.only, options.missing
    return recordings.entries(*given, options.on)


def summary(entry: recordings.Entry, answer: dict) -> list[str]:
    """The lines of the table for what a verb answered."""
    lines = [f"== {entry.title} [{answer['run']}]"]
    if entry.verb == "traverse":
        lines += [f"{answer['measured']} schemes, {len(answer['failures'])} failed"]
        return lines + [
            f"{r['code']:>18} {1e3 * (r['ms'] or 0):9.2f} us"
            for r in (*answer["best"][:3], *answer["baselines"])
        ]
    if entry.verb == "search":
        best = answer["result"] or {"code": answer["reason"], "ms": 0, "speedups": {}}
        gains = [f"{s['median']:.3f}x {name} {s['verdict']}" for name, s in best["speedups"].items() if s]
        found = f"{best['code']:>18} {1e3 * best['ms']:9.2f} us after {len(answer['history'])}"
        return [*lines, f"{found}; {', '.join(gains)}"]
    return lines + [line(r) for r in answer["records"]]


def trace() -> str:
    """One recorded Chrome trace, of the newest attention kernel."""
    from fusescope.jobs import submit

    case = {"batch": 16, "seq": 2048, "heads": 12, "head_dim": 64, "mask": "bigbird"}
    spec = {"op": "attention", "impl": "auto", "case": case, "dtype": "float16", "device": "cuda:0"}
    done = submit.wait(submit.submit("trace", spec, title="Trace of attention fp16 (16, 2048), BigBird"), 120)
    return f"== {done.title} [{done.id}] {done.status} {done.reason or ''}"


def whole(path: Path) -> Path:
    """The run's folder; of a comparison that the end of the time stopped, a run of its complete cases, which
    takes its place. One without a complete case stays as it is."""
    from fusescope.core.errors import RunError
    from fusescope.store import folder, merging

    run = folder.read(path)
    if run.kind not in ("bench", "model") or run.status not in ("cancelled", "interrupted"):
        return path
    try:
        with environ(FUSESCOPE_PROFILES=str(path.parent)):
            found = merging.merge([path])
    except RunError:
        return path
    shutil.rmtree(path)
    return found


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
    mode = "graph" if r["time_ms"].get("graph") else "eager"
    text = f"{r['impl']:>18} {case[:60]:60} {r['time_ms'][mode]['median'] * 1e3:9.1f} us {mode}"
    if speed := r.get("speedup"):
        text += f" {speed['median']:6.2f}x [{speed['low']:.2f},{speed['high']:.2f}] {speed['verdict']}"
    rate = r.get("tflops") or {}
    return f"{text} {rate.get('effective') or 0:7.1f} TF/s {r.get('gbps') or 0:7.0f} GB/s"
