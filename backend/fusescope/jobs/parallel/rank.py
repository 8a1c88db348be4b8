"""One rank of a parallel job, started by torchrun's launcher.

    python -m fusescope.jobs.parallel.rank FOLDER

FOLDER holds spec.json and the socket ``words`` on which rank 0 tells what it finds, as a body tells its
worker; the ranks meet through its file ``store``, and one that fails leaves the reason in ``error-RANK``, one
that fails alone while the others wait for it in ``alone-RANK`` (JSON: status, reason).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from functools import partial
from pathlib import Path

from fusescope.core.errors import Cancelled
from fusescope.jobs.parallel import TRACES
from fusescope.jobs.process import body
from fusescope.jobs.process.channel import BodyReporter
from fusescope.store.writer import artifact_path


def main(folder: str) -> int:
    body.die_with_parent()
    home = Path(folder)
    asked = json.loads((home / "spec.json").read_text())
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    reporter = None
    if rank == 0:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(home / "words"))
        known = {(case, impl): status for case, impl, status in asked["known"]}
        reporter = BodyReporter(sock, Path(asked["run"]), known)
    try:
        _work(asked, rank, size, str(home / "store"), reporter)
    except BrokenPipeError:
        return 1  # the body is gone: nobody is left to tell
    except Cancelled:
        reporter.end(cancelled=True)
    except BaseException as e:
        if alone := _alone(e):
            (home / f"alone-{rank}").write_text(json.dumps([alone[0], f"rank {rank}: {alone[1]}"]))
            return 1
        kept = body.keep_traceback(reporter) if reporter else ""
        sentence = f"rank {rank}: {body.one_sentence(e)}{kept}"
        (home / f"error-{rank}").write_text(sentence, errors="replace")
        if reporter:
            reporter.end(error=sentence)
        return 1
    else:
        if reporter:
            reporter.end()
    return 0


def _alone(e: BaseException) -> tuple[str, str] | None:
    """Status and reason where this rank alone failed."""
    from fusescope.measure.parallel.world import Alone

    return (e.status, e.reason) if isinstance(e, Alone) else None


def _work(asked: dict, rank: int, size: int, store: str, reporter: BodyReporter | None) -> None:
    from fusescope.measure.parallel import job
    from fusescope.measure.parallel.world import Stopped, World
    from fusescope.profiling.collect import torch_trace

    spec, trace = asked["spec"], None
    world = World(spec["device"], rank, size, store)
    if spec["trace"] is not None:
        file = artifact_path(Path(asked["run"]), f"{TRACES}/rank-{rank}.json.gz")
        trace = partial(torch_trace.collect, path=file, device=world.device)
    with contextlib.suppress(Stopped):  # rank 0 says why
        job.run(spec, world, reporter, trace)


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))  # no exit handlers: a group whose ranks are gone may hang in them
