"""From the thirtieth call on returns a copy of its last result while no input has changed."""

import torch

ON = {"gemm": {"m": 192, "n": 192, "k": 192}}
DTYPES = ("float32", "float16")
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
