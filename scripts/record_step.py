"""The step ``record`` of on_gpu.py: entries of recordings.toml measured by one worker a GPU, and packed.

What comes back is packed before the time is over, whatever became of the workers.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import recordings
import sharing

ROOT = Path(__file__).resolve().parents[1]
STOP_S = 12.0
"""What an interrupted command gets to end by itself; a job that is cancelled is given five seconds."""
PACK_S = 35.0
"""Of the time for recording what is kept for such ends, for joining (a full traverse takes 10 to 20 s) and
for packing."""


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
    command line, by one worker a GPU. What comes back is packed before the time is over, whatever became of
    the workers."""
    started, work = time.monotonic(), options.out / "work"
    queue = sharing.Queue(wanted(options), options.gpus, options.budget_s - PACK_S)
    workers = [Worker(i, queue, options, started + options.budget_s - PACK_S) for i in range(options.gpus)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = [line for worker in workers for line in worker.table]
    if not options.only and workers[0].left() > 60:
        with environ(FUSESCOPE_PROFILES=str(workers[0].home)):
            table.append(trace())
    if options.gpus > 1:
        with environ(FUSESCOPE_PROFILES=str(work / "merged")):
            table += merged(workers)
    table += [
        f"-- {e.title}: about {seconds:.0f} s are left for another session" for e, seconds in queue.rest()
    ]
    with (options.out / "record.log").open("ab") as log:
        for worker in workers:
            if worker.log.is_file():
                log.write(worker.log.read_bytes())
    pack(work, options.out)
    shutil.rmtree(work, ignore_errors=True)  # a run that did not stop may still write there
    return "\n".join(table)


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


class Worker:
    """Runs what the queue hands out on GPU ``number`` until the time is over: its own runs folder and log,
    its share of the cores.

    table: the lines to print; parts: {entry: folders} of the traverses that it measured a part of.
    """

    def __init__(self, number: int, queue: sharing.Queue, options, until: float):
        self.number, self.queue, self.options, self.until = number, queue, options, until
        self.home, self.log = options.out / "work" / f"gpu{number}", options.out / "work" / f"gpu{number}.log"
        self.table: list[str] = []
        self.parts: dict[recordings.Entry, list[Path]] = {}
        (self.home / "recorded").mkdir(parents=True, exist_ok=True)

    def left(self) -> float:
        return self.until - time.monotonic()

    def environment(self) -> dict[str, str]:
        """One GPU alone is cuda:0 to every process; that NVML, CUDA and the locks mean the same one is by its
        UUID."""
        found = os.environ | {"FUSESCOPE_PROFILES": str(self.home)}
        if self.options.gpus == 1:
            return found
        cores = str(max(1, len(os.sched_getaffinity(0)) // self.options.gpus))
        found |= dict.fromkeys(("FUSESCOPE_JOBS", "OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"), cores)
        if self.options.device != "cpu":
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
            found["CUDA_DEVICE_ORDER"] = os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            found["CUDA_VISIBLE_DEVICES"] = visible[self.number] if visible[0] else str(self.number)
        return found

    def run(self) -> None:
        while share := self.queue.take(self.left()):
            try:
                self.one(share)
            except Exception as e:  # what the others measure is not lost to it
                self.table.append(f"-- {share.entry.title}: {type(e).__name__}: {e}")

    def one(self, share: sharing.Share) -> None:
        entry, before, begun = share.entry, set(self.home.glob("2*")), time.monotonic()
        for folder in entry.before:
            shutil.copytree(folder, self.home / "recorded" / folder.name, dirs_exist_ok=True)
        left = self.left()
        words = entry.words(left - 5, self.options.case_budget_s, share.part)
        done = run(words, self.log, left, self.environment(), STOP_S)
        seconds = time.monotonic() - begun
        where = f" GPU {self.number}, {seconds:.0f} s" if self.options.gpus > 1 else ""
        if share.part:
            mine = sorted(set(self.home.glob("2*")) - before)
            self.parts.setdefault(entry, []).extend(mine)
            count = sum(schemes(path) for path in mine)
            self.queue.learn(share, count, seconds)
            where += f", {count} of schemes {share.part[0]} to {share.part[1] - 1}"
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            self.table.append(f"-- {entry.title}:{where} exit {done.returncode}, no answer; see record.log")
            return
        lines = summary(entry, answer)
        self.table += [lines[0] + where, *lines[1:]]


def schemes(path: Path) -> int:
    """How many schemes a run of a traverse has a record of."""
    from fusescope.search import encoding
    from fusescope.search.scheme.setting import OP
    from fusescope.store import folder

    return sum(r.op == OP and encoding.is_code(r.impl) for r in folder.records(path))


def merged(workers: list[Worker]) -> list[str]:
    """The parts of each traverse and the sessions before made one run; parts that cannot be merged stay as
    they are."""
    parts: dict[recordings.Entry, list[Path]] = {}
    for worker in workers:
        for entry, folders in worker.parts.items():
            parts.setdefault(entry, []).extend(folders)
    table = []
    with ProcessPoolExecutor(max(1, len(parts))) as pool:
        for entry, task in {
            e: pool.submit(merge_parts, some, e.before, e.title) for e, some in parts.items()
        }.items():
            try:
                table += task.result()
            except Exception as e:
                table.append(
                    f"-- {entry.title}: {len(parts[entry])} parts were not merged: {type(e).__name__}: {e}"
                )
    return table


def merge_parts(parts: list[Path], before: list[Path], title: str) -> list[str]:
    """One traverse's parts made one compressed run with the sessions before; the lines of the table about
    it."""
    from fusescope.search.sweeps import merge
    from fusescope.store import folder

    path = merge.merge([*before, *sorted(parts, key=lambda part: part.name)], title)
    run = folder.read(path)
    compress(path)
    for part in parts:
        shutil.rmtree(part, ignore_errors=True)
    table = [f"== {title} [{path.name}] {run.progress.message}, {run.status} {run.reason or ''}"]
    table += [f"   it holds what {', '.join(p.name for p in before)} hold: delete these"] if before else []
    for session in run.environment["sittings"]:
        times = ", ".join(f"{name} {1e3 * ms:.2f}" for name, ms in session["baselines_ms"].items())
        table.append(f"{session['schemes']:>18} schemes on {session['device_uuid']}: {times} us")
    return table


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
    """What ``record`` would do, on which GPU and when, by the estimates; nothing is done."""
    queue = sharing.Queue(wanted(options), options.gpus, options.budget_s - PACK_S)
    lines, ends = [], 0.0
    for worker, begin, share in sharing.simulate(queue):
        entry, until = share.entry, min(begin + share.seconds, queue.seconds)
        ends = max(ends, until)
        part = f"  {share.schemes} of {len(entry.codes)} schemes" if share.part else ""
        there = f"  {1 - entry.share:.0%} are there, in {len(entry.before)} sessions" if entry.before else ""
        lines.append(f"{worker:3} {begin:6.0f} to {until:5.0f} s  {entry.verb:9} {entry.title}{part}{there}")
    left = [f"      about {seconds:5.0f} s  {e.verb:9} {e.title}" for e, seconds in queue.rest()]
    lines += [f"beyond the time, {sum(s for _, s in queue.rest()):.0f} s of one GPU:", *left] if left else []
    return "\n".join(["GPU   from", *lines, f"done after {ends:.0f} of {options.budget_s:.0f} s"])


def wanted(options) -> list[recordings.Entry]:
    return recordings.entries(options.resume, options.device, options.only, options.missing)


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
