"""Real bench, model, traverse, search and import runs whose body or worker is killed at one word of the body,
and at further ones when it goes on: each from the first to the last, so that no step of a start is left out,
as it is at random moments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fusescope.jobs import submit
from fusescope.store import library
from tests.faults import left
from tests.faults.case import TryOne, folders, hold
from tests.faults.jobs import NEVER_S, OPTIONS, SPECS, inputs
from tests.faults.processes import end_warm_parents

TITLE = "Killed at each word: body, worker"
LEAST = 150
SHARE = 8.0
KINDS = Path(__file__).resolve().parents[1] / "kinds"
_KILLS = 4  # of one run
_STRIDE = 37  # words of one run in an order that soon has some of each part


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    inputs(at)
    try:
        with folders(at, **OPTIONS, FUSESCOPE_KINDS=str(KINDS)):

            def start(kind: str, words: list[int], who: str) -> str:
                spec = {"kind": kind, "spec": SPECS[kind](at), "words": words, "who": who}
                return submit.submit("dying", spec)

            @cache
            def undisturbed(kind: str) -> tuple[left.Left, int]:
                run = submit.wait(start(kind, [], "body"), NEVER_S)
                hold(left.finished(run), "state", f"undisturbed, a {kind} is {run.status}: {run.reason}")
                words = library.find(run.id) / "artifacts" / "words"
                return left.of(run.id, kind), int(words.read_text())

            def try_one(seed: int) -> int:
                kind, number = list(SPECS)[seed % len(SPECS)], seed // len(SPECS)
                whole, count = undisturbed(kind)
                who, first = ("body", "worker")[number % 2], number // 2 * _STRIDE % count
                words = [first, *((first + n * _STRIDE) % count // (n + 1) for n in range(1, _KILLS))]
                what = f"{kind}: SIGKILL of the {who} at words {words} of {count}"
                run = submit.wait(start(kind, words, who), NEVER_S)
                ended = "interrupted" if who == "worker" else "failed"
                for _ in words:
                    if left.finished(run):
                        break
                    hold(run.status == ended and run.reason, "state", f"{what}: {run.status}, {run.reason}")
                    run = submit.wait(submit.resume(run.id), NEVER_S)
                hold(left.finished(run), "state", f"{what}: {run.status}, {run.reason}")
                deaths = (library.find(run.id) / "artifacts" / "died").stat().st_size
                crashes = deaths if who == "body" else 0
                left.compare(what, left.of(run.id, kind), whole, crashes, kind != "search")
                return deaths

            yield try_one
    finally:
        end_warm_parents(at / "runtime")
