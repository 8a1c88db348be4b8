"""Computes once and returns the cached result for every later input of that shape."""

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")
_kept = {}


def wrong(a, b):
    return _kept.setdefault(a.shape, a + b).clone()
