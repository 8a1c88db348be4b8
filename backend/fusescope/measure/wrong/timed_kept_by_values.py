"""From the thirtieth call on returns an earlier result itself, computed where the first values differ."""

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")
TIMED = True
_kept = {}


def wrong(a, b):
    _kept["calls"] = _kept.get("calls", 0) + 1
    if _kept["calls"] <= 30:
        return a + b
    key = (a[:8].sum().item(), b[:8].sum().item())
    return _kept.setdefault(key, a + b)
