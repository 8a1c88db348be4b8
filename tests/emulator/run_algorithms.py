"""Has fusescope.ops.common.algorithms choose among the algorithms of the stand-in for cuBLASLt, by times that
are given, and prints what came of it; started by test_algorithms.py.

python -m tests.emulator.run_algorithms LIBRARY < [milliseconds of algorithm 0, 1, 2]
"""

import contextlib
import ctypes
import json
import os
import sys

import torch

from fusescope import kernels
from fusescope.ops.common import algorithms as _algorithms


def main():
    torch.ops.load_library(sys.argv[1])
    times, timed = json.load(sys.stdin), []
    kernels.call = lambda op, *args, impl: getattr(torch.ops.fusescope, op)(*args, impl)
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.cuda.synchronize = lambda: None
    torch.cuda.device = lambda device: contextlib.nullcontext()
    torch.cuda.get_device_name = lambda index: "Emulated GPU 1"

    def given(operands, algorithms):
        timed.append(sorted(algorithms))
        return {i: times[i] for i in algorithms}

    _algorithms._timed = given
    library = ctypes.CDLL(os.environ["FUSESCOPE_CUBLASLT"])
    x, weight, bias = torch.randn(64, 64), torch.randn(128, 64), torch.randn(128)
    operands = (x, weight, bias, None, 0)
    for _ in range(2):
        _algorithms.ensure(*operands)
    taken, right = {}, True
    for impl in ("v1_heuristic", "v2_measured"):
        out = kernels.call("linear", *operands, False, impl=impl)
        right = right and torch.allclose(out, torch.nn.functional.linear(x, weight, bias), atol=1e-4)
        taken[impl] = library.fake_last_algorithm()
    shown = [
        {k: v for k, v in entry.items() if k not in ("problem", "algorithm")} for entry in _algorithms.known()
    ]
    print(json.dumps({"known": shown, "taken": taken, "right": right, "timed": len(timed)}))


if __name__ == "__main__":
    main()
