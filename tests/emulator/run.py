"""Runs emulated kernels on the cases of their operators (cases*.py).

A process of its own, because a library defines operators a second time. It reads requests, a JSON line each,
answers each with a JSON line, and runs each in a fork, so that an aborted kernel (a deadlock) is an answer
too.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fusescope.core import paths
from tests.emulator import cublaslt


class Server:
    """The process, as tests see it; a context."""

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.emulator.run"],
            cwd=paths.CHECKOUT,
            env=os.environ
            | {"PYTHONPATH": paths.python_path(paths.CHECKOUT), "FUSESCOPE_CUBLASLT": str(cublaslt())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()

    def run(self, library: Path, op: str, impl: str, check: str = "") -> list[dict]:
        """What came of each case: {"case", "dtype", "contiguous", "wrong", "refused", "seconds"}; wrong and
        refused are None or a reason. check: one of cases_unseen or cases_score, else the operator's own
        cases. RuntimeError with the kernel's last words where it does not end."""
        request = {"library": str(library), "op": op, "impl": impl, "check": check}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer


def main() -> None:
    import torch

    from fusescope.measure.checking.poison import poisoned
    from tests.emulator import cases

    cases.emulations()
    with poisoned("cpu", 8):  # what these two import is there in every fork
        torch.empty(1)
    gc.freeze()
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(_in_fork(json.loads(line))), flush=True)


def _in_fork(request: dict) -> list[dict] | str:
    with tempfile.TemporaryFile("w+") as answer, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            try:
                os.dup2(errors.fileno(), 2)
                json.dump(_results(**request), answer)
                answer.flush()
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        _, status = os.waitpid(child, 0)
        for file in (answer, errors):
            file.seek(0)
        return errors.read()[-4000:] if status else json.load(answer)


def _results(library: str, op: str, impl: str, check: str) -> list[dict]:
    import torch

    from fusescope import kernels
    from tests.emulator import cases, cases_score, cases_unseen

    torch.ops.load_library(library)

    def call(name, *args, impl, more=()):
        return getattr(torch.ops.fusescope, name)(*args, impl, *more)

    kernels.call = call
    if check.startswith(cases_score.CHECK):
        return list(cases_score.results(impl, check))
    return list(cases_unseen.results(op, impl, check) if check else cases.results(op, impl))


if __name__ == "__main__":
    main()
