"""Changes its input from the thirtieth call on."""

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")
TIMED = True
_kept = {}


def wrong(a, b):
    out = a + b
    _kept["mutations"] = _kept.get("mutations", 0) + 1
    if _kept["mutations"] > 30:
        a[0] = 7
    return out
