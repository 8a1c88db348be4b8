"""Changes its input."""

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")


def wrong(a, b):
    out = a + b
    a[0] = 7
    return out
