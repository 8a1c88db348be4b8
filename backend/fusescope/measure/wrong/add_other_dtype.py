"""Returns another dtype."""

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")


def wrong(a, b):
    return (a + b).double()
