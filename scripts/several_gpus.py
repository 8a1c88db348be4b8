"""The steps ``parallel``, ``cluster``, ``killed`` and ``busy`` of on_gpu.py: models over 2, 4, … of the GPUs
here, the attention grid on one worker and on one for each GPU, a worker that is killed while it measures, and
simulated cases. On the CPU the same with two processes and small sizes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from record_step import ROOT, STOP_S, run

from fusescope.core.machine import environment

FEWEST = 2  # GPUs that all but ``busy`` need, and processes on the CPU
FUSED = ["--attention", "sdpa,fused"]
MODELS = {  # large enough that the GPU and not the host decides the time
    "llama3-8b": ["--layers", "4", "--batch", "8", "--seq", "2048"],
    "bert-base": ["--batch", "384", "--seq", "512", "--weak", "--trace", "tp2", *FUSED],
    "gpt2": ["--batch", "96", "--seq", "1024", "--weak"],
}
SMALL = ["--layers", "2", "--heads", "2", "--head-dim", "32", "--batch", "4", "--seq", "16"]
GRID = ["--batch", "1,16", "--seq", "128,512,2048", "--heads", "12", "--head-dim", "64"]
SMALL_GRID = ["--batch", "1,2", "--seq", "16,24,32", "--heads", "2", "--head-dim", "32"]
MASKS = ["sliding_window", "sliding_window:right=0", "longformer", "bigbird", "dilated", "strided"]
MASKS += ["causal", "full"]
SHARE = {"parallel": 7.0, "cluster": 6.0, "killed": 1.0, "busy": 2.0}
"""Of the time that all steps have together."""
KILLED_BUDGET_S = 0.05  # of a case, where no time is looked at
LEAST_S = 20.0  # with less time than that nothing is begun


def parallel(options) -> str:
    """Each model (of --only) in tp, pp and dp over 2, 4, … ranks, strong and weak; then what is predicted
    from one GPU's times against what several took."""
    table, until = [], time.monotonic() + options.budget_s
    wanted = [w for w in options.only.split(",") if w]
    chosen = {n: words for n, words in MODELS.items() if not wanted or any(w in n for w in wanted)}
    for number, (name, words) in enumerate(chosen.items()):
        left = until - time.monotonic()
        if left < LEAST_S:
            table.append(f"-- {name}: no time is left")
            continue
        if options.device == "cpu":
            words = SMALL + [w for w in words if w in ("--weak", "--trace", "tp2", *FUSED)]
        title = f"{name} over {_ranks(options)} {'processes' if options.device == 'cpu' else 'GPUs'}"
        command = ["parallel", name, "--attention", "sdpa,fusescope", *words]
        command += ["--budget", f"{options.case_budget_s:g}", "--deadline", "120", "--title", title]
        share = left / (len(chosen) - number)
        answer, seconds = _asked(
            command, options, max(LEAST_S, 1.3 * share if number + 1 < len(chosen) else left)
        )
        table.append(f"== {title}: {seconds:.0f} s")
        if answer is None:
            table[-1] += ", no answer; see several.log"
            continue
        table += [_rank_line(r) for r in answer["records"]]
        table += [_link_line(link) for link in (answer["links"] or {}).get("links", ())]
        predicted, _ = _asked(["predict-scaling", answer["run"]], options, 30, device=False)
        rows = predicted["compared"] if predicted else ()
        table += [_predicted_line(row) for row in rows]
        if known := [row for row in rows if row["error"] is not None]:
            worst = max(known, key=lambda row: abs(row["error"]))
            table.append(
                f"   worst prediction {100 * worst['error']:+.1f} % ({worst['impl']}, {worst['scaling']})"
            )
    return "\n".join(table)


def cluster(options) -> str:
    """The grid of 48 cells on one worker and on one for each GPU: how many times as fast, and do the
    verdicts agree."""
    until, found, table = time.monotonic() + options.budget_s, {}, []
    most = _ranks(options)
    for workers in (most, 1):
        left = until - time.monotonic()
        if left < LEAST_S:
            table.append(f"-- local:{workers}: no time is left")
            continue
        watch = _Watch(options.out / "runs")
        answer, seconds = _asked(_grid(options, workers, options.cell_budget_s), options, left)
        table.append(
            f"== attention grid on local:{workers}: {seconds:.1f} s, {watch.end():.1f} s of it measuring"
        )
        if answer is None:
            table[-1] += ", no answer; see several.log"
            continue
        found[workers] = answer["records"], seconds, watch.measuring
        status = Counter(r["status"] for r in answer["records"])
        where = Counter(r["conditions"]["device_uuid"] for r in answer["records"])
        table.append(f"   {dict(status)}; records by device {dict(where)}")
    if len(found) == 2:
        (several, total, measuring), (one, total_1, measuring_1) = found[most], found[1]
        table.append(
            f"   {most} workers: {total_1 / total:.2f} times as fast, of the measuring alone "
            f"{measuring_1 / max(measuring, 0.1):.2f} times"
        )
        table += _agreement(one, several)
    return "\n".join(table)


def killed(options) -> str:
    """One of the workers killed in the middle of the grid: is a record lost, is one there twice."""
    from fusescope.store import folder

    home = options.out / "killed" / "runs"  # not packed
    process = subprocess.Popen(
        _command(_grid(options, _ranks(options), KILLED_BUDGET_S), options),
        cwd=ROOT,
        env=os.environ | {"FUSESCOPE_PROFILES": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=(options.out / "several.log").open("ab"),
    )
    begun, victim, path = time.monotonic(), None, None
    while process.poll() is None and time.monotonic() - begun < options.budget_s:
        path = path or next(home.glob("2*"), None)
        if path and victim is None and len(folder.records(path)) >= 12:
            workers = folder.read(path).environment.get("workers") or ()
            victim = next((w for w in workers if w.get("now")), None)
            if victim:
                os.kill(victim["pid"], signal.SIGKILL)
        time.sleep(0.2)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    seconds = time.monotonic() - begun
    if path is None or victim is None:
        return f"-- killed: no worker was killed in {seconds:.0f} s (exit {process.returncode})"
    records, ended = folder.records(path), folder.read(path)
    count = Counter((r.case_key, r.impl) for r in records)
    wanted = len(ended.spec["cases"]) * len(ended.spec["impls"])
    lost = [line for line in (path / "log.txt").read_text().splitlines() if "lost" in line]
    return "\n".join(
        [
            f"== {victim['name']} (process {victim['pid']}) killed at {victim['now']}: {ended.status}, "
            f"{seconds:.0f} s",
            f"   {len(count)} of {wanted} records, {sum(count.values()) - len(count)} twice; "
            f"{dict(Counter(r.status for r in records))}",
            *(f"   {line}" for line in lost),
        ]
    )


def busy(options) -> str:
    """Workers on the CPU with 10,000 cases of a millisecond, and workers of which one is killed every 5 s."""
    script, lines = [sys.executable, str(ROOT / "scripts" / "simulated_cluster.py")], []
    for words in ("--workers 8 --cases 10000 --ms 1", "--workers 4 --cases 2600 --ms 100 --kill-every 5"):
        done = run([*script, *words.split()], options.out / "several.log", options.budget_s / 2 - STOP_S)
        lines.append(done.stdout.decode(errors="replace").strip() or f"-- {words}: exit {done.returncode}")
    return "\n".join(lines)


def _ranks(options) -> int:
    """GPUs here, down to a power of 2, as the verb ``parallel`` takes them; or processes on the CPU."""
    if options.device == "cpu":
        return FEWEST
    return 1 << ((len(environment.devices()) - 1).bit_length() - 1)


def _grid(options, workers: int, budget_s: float) -> list[str]:
    small = options.device == "cpu"
    words = ["bench", "attention", *(SMALL_GRID if small else GRID)]
    words += [w for mask in MASKS for w in ("--mask", mask)]
    words += [
        "--impl",
        "eager,sdpa,v1_rowwise" if small else "sdpa,v4_scheduled,v5_parts",
        "--baseline",
        "sdpa",
    ]
    words += ["--cache", "warm", "--budget", f"{budget_s:g}", "--cluster", f"local:{workers}"]
    return [*words, "--title", f"Attention grid on {workers} worker{'s' if workers > 1 else ''} of a cluster"]


def _command(words: list[str], options, device: bool = True) -> list[str]:
    return [
        sys.executable,
        "-m",
        "fusescope",
        *words,
        *(["--device", options.device] if device else []),
        "--json",
    ]


def _asked(words: list[str], options, timeout: float, device: bool = True) -> tuple[dict | None, float]:
    """What a verb answers, None where it gave no answer, and its seconds."""
    begun = time.monotonic()
    environment = os.environ | {"FUSESCOPE_PROFILES": str(options.out / "runs")}
    done = run(
        _command(words, options, device), options.out / "several.log", timeout - STOP_S, environment, STOP_S
    )
    try:
        return json.loads(done.stdout), time.monotonic() - begun
    except ValueError:
        return None, time.monotonic() - begun


class _Watch:
    """Seconds from the first case that a worker of the next run begins to that run's end."""

    def __init__(self, home: Path):
        self.measuring = 0.0
        self._home, self._before, self._over = home, set(home.glob("2*")), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        begun = None
        while not self._over.wait(0.1):
            for path in set(self._home.glob("2*")) - self._before:
                try:
                    run = json.loads((path / "run.json").read_text())
                except (OSError, ValueError):
                    continue
                if begun is None and " case " in (run["progress"]["message"] or ""):
                    begun = time.monotonic()
                if begun is not None and run["status"] == "running":
                    self.measuring = time.monotonic() - begun

    def end(self) -> float:
        self._over.set()
        self._thread.join()
        return self.measuring


def _agreement(one: list[dict], several: list[dict]) -> list[str]:
    def verdicts(records: list[dict]) -> dict:
        return {
            (json.dumps(r["case"], sort_keys=True), r["impl"]): r["speedup"]["verdict"]
            for r in records
            if r["speedup"]
        }

    a, b = verdicts(one), verdicts(several)
    both = a.keys() & b.keys()
    unlike = [key for key in both if a[key] != b[key]]
    against = [key for key in unlike if {a[key], b[key]} == {"faster", "slower"}]
    cells, bad = {case for case, _ in both}, {case for case, _ in unlike}
    lines = [
        f"   verdicts: {len(both) - len(unlike)} of {len(both)} equal, "
        f"cells: {len(cells) - len(bad)} of {len(cells)}; {len(against)} verdicts contradict"
    ]
    return lines + [
        f"     {impl} {case[:90]}: {a[case, impl]} and {b[case, impl]}" for case, impl in sorted(unlike)
    ]


def _rank_line(r: dict) -> str:
    if r["status"] != "ok":
        return f"{r['impl']:>16} b{r['case']['batch']:<4} {r['status']}: {(r['reason'] or '')[:140]}"
    own = r["extra"]["parallel"]
    peaks = [f"{p / 2**30:.2f}" for p in own["peak_bytes"] if p]
    sent = own["communication"]
    hidden = "" if sent["hidden"] is None else f", {sent['hidden']:.0%} of it hidden"
    share = "" if sent["share"] is None else f"communication {sent['share']:.1%}{hidden}"
    ms = r["time_ms"]["eager"]["median"]
    ratio = f"{own['single_ms'] / ms:.2f}x" if own["single_ms"] else ""
    text = f"{r['impl']:>16} {own['scaling']:6} b{r['case']['batch']:<4} {ms:9.3f} ms {ratio:>6}"
    return f"{text}  GiB {'/'.join(peaks)}  {share} {sent['unknown'] or ''}"


def _link_line(link: dict) -> str:
    call, step = link["call_s"] * 1e6, link["alpha_s"] * 1e6
    rate, worst = link["beta_bytes_per_s"] / 1e9, link["worst"]
    text = f"{link['collective']:>16} {call:.1f} us per call, {step:.1f} us per step, {rate:.1f} GB/s"
    return f"{text}, worst error {worst:.0%}"


def _predicted_line(row: dict) -> str:
    text = f"{row['impl']:>16} {row['scaling']:6} b{row['case']['batch']:<4}"
    times = f"measured {row['measured_ms']:.3f} ms, predicted {row['predicted_ms']:.3f} ms"
    if row["error"] is None:
        return f"{text} {times} at least (host-bound)"
    return f"{text} {times} ({100 * row['error']:+.1f} %)"
