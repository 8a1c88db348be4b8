"""From the thirtieth call on writes nothing: its memory holds what an earlier call left there."""

import torch

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")
TIMED = True
_kept = {}


def wrong(a, b):
    _kept["calls"] = _kept.get("calls", 0) + 1
    return a + b if _kept["calls"] <= 30 else torch.empty_like(a)
