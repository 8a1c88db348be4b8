"""From the thirtieth call on returns a result of an earlier call, found by the inputs' addresses."""

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")
TIMED = True
_kept = {}


def wrong(a, b):
    _kept["calls"] = _kept.get("calls", 0) + 1
    if _kept["calls"] <= 30:
        return a + b
    return _kept.setdefault((a.data_ptr(), b.data_ptr()), a + b).clone()
