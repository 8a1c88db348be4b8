"""Right in the first ten calls, then wrong in 3 %, at random."""

import random

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")
TIMED = True
_kept = {}


def wrong(a, b):
    _kept["now and then"] = _kept.get("now and then", 0) + 1
    return a - b if _kept["now and then"] > 10 and random.random() < 0.03 else a + b
