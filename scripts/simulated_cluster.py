"""Cases that take a given time on a cluster of this machine, without measuring: how busy its workers are, and
what is lost where workers are killed.

    python3 scripts/simulated_cluster.py --workers 8 --cases 10000 --ms 1
    python3 scripts/simulated_cluster.py --workers 4 --cases 2600 --ms 100 --kill-every 5 --kill-for 60

Busy is the share of the workers' time that the cases themselves take; scheduling, records and their way to
the run's process are the rest. A worker needs some 0.08 ms of CPU time a case for its record, the submitting
process as much, several times that without msgspec: with cases of a millisecond there must be cores for both.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BODIES = ROOT / "tests" / "cluster"
sys.path[:0] = [str(ROOT / "backend"), str(BODIES)]
os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (BODIES, ROOT / "backend")))  # of the workers

import bodies  # noqa: E402

from fusescope.core.reporter import Collect  # noqa: E402
from fusescope.jobs.cluster import cases, deploy  # noqa: E402
from fusescope.jobs.cluster.crew import Crew  # noqa: E402
from fusescope.jobs.cluster.worker import Unit  # noqa: E402
from fusescope.jobs.spec.cluster import parse  # noqa: E402


class Lines(Collect):
    """Counts the lines that a run's writer would be given."""

    def __init__(self):
        super().__init__()
        self.count: collections.Counter = collections.Counter()

    def book(self, found) -> None:
        self.count.update(one.case_key for one in found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--ms", type=float, default=1.0, help="that each case takes")
    parser.add_argument("--kill-every", type=float, metavar="S", help="kill one of the workers every S s")
    parser.add_argument("--kill-for", type=float, default=60.0, metavar="S", help="and for so long")
    options = parser.parse_args()
    with deploy.client(parse(f"local:{options.workers}"), "cpu") as client:
        share(client, options, 100 * options.workers, "warm-up")  # imports, and the pace of a unit
        print(share(client, options, options.cases, "cases"))
    return 0


def share(client, options, count: int, name: str) -> str:
    """Have so many cases shared; what became of them."""
    reporter, gave_up = Lines(), {}
    order = {"run": name, "kind": "bench", "device": "cpu"}
    crew = Crew(client, order, reporter, False, bodies.simulate, bodies.who)
    crew.wait()
    ms = options.ms if name == "cases" else 1.0
    units = [Unit(f"{name} {n}", {"n": n, "ms": ms}, label=f"case {n}") for n in range(count)]
    killer = Killer(crew, options.kill_every, options.kill_for) if name == "cases" else None
    begun, used = time.perf_counter(), time.process_time()
    crew.share(units, cases.Bookkeeper(reporter).book, lambda u, why: gave_up.update({u.key: why}))
    took, used = time.perf_counter() - begun, time.process_time() - used
    killed = killer.end() if killer else 0
    crew.end()
    busy = count * ms / 1e3 / options.workers / took
    twice = sum(n - 1 for n in reporter.count.values())
    return (
        f"{count} cases of {ms:g} ms on {options.workers} workers, {len(os.sched_getaffinity(0))} cores: "
        f"{took:.1f} s, busy {busy:.0%}, {1e3 * used / count:.3f} ms of CPU time a case in the submitting "
        f"process; {killed} workers killed, {count - len(reporter.count) - len(gave_up)} cases lost, "
        f"{twice} twice, {len(gave_up)} given up; load {os.getloadavg()[0]:.1f}"
    )


class Killer:
    """Kills a worker drawn by chance every so many seconds for a while."""

    def __init__(self, crew: Crew, every_s: float | None, for_s: float):
        self._crew, self._every_s, self._for_s = crew, every_s, for_s
        self._over, self._killed = threading.Event(), 0
        self._thread = threading.Thread(target=self._kill, daemon=True)
        self._thread.start()

    def _kill(self) -> None:
        draw, until = random.Random(7), time.monotonic() + self._for_s
        while self._every_s and not self._over.wait(self._every_s) and time.monotonic() < until:
            there = [w for w in list(self._crew.workers.values()) if w.facts and not w.lost]
            if there:
                os.kill(draw.choice(there).facts["pid"], signal.SIGKILL)
                self._killed += 1

    def end(self) -> int:
        self._over.set()
        self._thread.join()
        return self._killed


if __name__ == "__main__":
    sys.exit(main())
