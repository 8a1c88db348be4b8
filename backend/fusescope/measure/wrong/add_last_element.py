"""Zero in the last element only."""

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")


def wrong(a, b):
    out = a + b
    out[-1] = 0
    return out
