"""Compiles segments in a process of its own: requests and answers are lines of JSON on standard input and
output.

    {"setting": {…}, "start": 9, "stop": 11}  ->  {"start": 9, "stop": 11, "seconds": 1.9, "error": null}

What it leaves is torch's own cache of compiled graphs and kernels on disk, where the process that measures
finds them. Of several traverses of one setting, on several GPUs, a segment is compiled by the first that
comes to it; the others wait, and find it there.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator

from fusescope.core.machine import runtime


def main() -> int:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers print is no answer
    import torch
    import torch._inductor.compile_fx  # takes seconds; no caller should wait for it

    from fusescope.search.scheme import setting as settings

    for line in sys.stdin:
        request = json.loads(line)
        start, error = time.monotonic(), None
        try:
            setting, operators = (
                settings.of_spec(request["setting"]),
                range(request["start"], request["stop"]),
            )
            with alone(f"{setting.spec()} {operators}"), torch.no_grad():
                _compile(setting, operators)
        except Exception as e:
            error = f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        answer = {
            "start": request["start"],
            "stop": request["stop"],
            "seconds": time.monotonic() - start,
            "error": error,
        }
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """One process of this user at a time, as long as it lives."""
    with open(
        runtime.private() / f"compile-{hashlib.sha256(what.encode()).hexdigest()[:16]}.lock", "w"
    ) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(setting, operators: range) -> None:
    """Call the segment once on random tensors of the shapes that it will be called with."""
    import torch

    from fusescope import masks
    from fusescope.search.measuring import segments
    from fusescope.search.scheme import codegen
    from fusescope.search.scheme.layer import VALUES

    sizes, given = setting.sizes(), []
    s = codegen.segment(operators, False, setting)
    for name in s.takes:
        if name in ("mask", "empty_rows"):
            per = masks.parse(setting.mask).per_sequence
            shape = (setting.seq, setting.seq if name == "mask" else 1)
            given.append(
                torch.ones(
                    (setting.batch, 1, *shape) if per else shape, dtype=torch.bool, device=setting.device
                )
            )
        else:
            dims = VALUES[name].dims(sizes)
            given.append(torch.randn(dims, device=setting.device, dtype=getattr(torch, setting.dtype)))
    segments.load(s, setting)(*given)
    if setting.cuda:
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
