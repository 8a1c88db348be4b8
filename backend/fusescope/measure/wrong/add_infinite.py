"""Infinite in one element."""

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")


def wrong(a, b):
    out = a + b
    out[0] = float("-inf")
    return out
