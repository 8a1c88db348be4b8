"""Right for 20 calls, wrong afterwards."""

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")
TIMED = True
_kept = {}


def wrong(a, b):
    _kept["later"] = _kept.get("later", 0) + 1
    return a + b if _kept["later"] <= 20 else a - b
