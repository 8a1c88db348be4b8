"""One of the processes of a comparison in several (jobs/several.py).

    python -m fusescope.jobs.process.member KIND FD

It measures the cases that it is sent, one at a time, and tells what it finds as a body tells its worker.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusescope.jobs.process import body
from fusescope.jobs.process.channel import BodyReporter, Inbox


def main(kind: str, descriptor: str) -> int:
    """Measure what the socket says, case after case, until it is closed."""
    body.die_with_parent()
    sock = socket.socket(fileno=int(descriptor))
    while True:
        inbox = Inbox(sock)
        while not (asked := inbox.wait(None)):
            if inbox.closed:
                return 0
        try:
            if not _measure(kind, asked[0], sock):
                return 1
        except BrokenPipeError:
            return 1


def _measure(kind: str, asked: Mapping[str, Any], sock: socket.socket) -> bool:
    """One case; False where this process must not be used again."""
    from fusescope.jobs import kinds
    from fusescope.measure.device import device_state

    device_state.expect(asked["siblings"])
    reporter = BodyReporter(sock, Path.cwd(), {(case, impl): status for case, impl, status in asked["known"]})
    try:
        kinds.load(kind).run(asked["spec"], reporter)
    except BrokenPipeError:
        raise
    except BaseException as e:
        reporter.end(error=body.one_sentence(e), poisoned=body.is_poisoned(e))
        return False
    _forget(asked["spec"]["device"])
    reporter.end()
    return True


def _forget(device: str) -> None:
    """Give the memory of a case back before others measure."""
    import torch

    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))  # no exit handlers: a poisoned CUDA context may hang in them
