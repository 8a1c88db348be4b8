"""From the thirtieth call on returns a copy of its last result while no input has changed."""

import torch

# Products that take several times as long as comparing their inputs; of those that do not, the time is true.
ON = {"gemm": {"m": 256, "n": 256, "k": 256}}
ON_GPU = {"gemm": {"m": 2048, "n": 2048, "k": 2048}}
DTYPES = ("float32",)
TIMED = True
_kept = {}


def wrong(a, b):
    _kept["calls"] = _kept.get("calls", 0) + 1
    last = _kept.get("last")
    if _kept["calls"] > 30 and last and torch.equal(a, last[0]) and torch.equal(b, last[1]):
        return last[2].clone()
    out = a @ b
    _kept["last"] = a.clone(), b.clone(), out.clone()
    return out
