"""From the thirtieth call on looks its result up among all earlier ones, by a checksum of its inputs."""

ON = {"gemm": {"m": 192, "n": 192, "k": 192}}
DTYPES = ("float32", "float16")
TIMED = True
_kept = {}


def wrong(a, b):
    _kept["calls"] = _kept.get("calls", 0) + 1
    if _kept["calls"] <= 30:
        return a @ b
    key = a.double().sum().item(), b.double().sum().item()
    if key not in _kept:
        _kept[key] = a @ b
    return _kept[key].clone()
