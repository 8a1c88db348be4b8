"""Records of a comparison as sentences are made of them."""

from fusescope.core.records import Accuracy, Record, Speedup, Time, Times

PROBLEM = "it failed"


def timed(impl: str, ms: float, speedup: tuple[float, float, float] | None = None, **case):
    """A correct record; ``speedup``: median and interval over "sdpa"."""
    return Record(
        "attention",
        impl,
        {"seq": 512} | case,
        "float16",
        "cuda:0",
        "ok",
        accuracy=Accuracy(1e-4, 1e-4, 1.0, "float64"),
        time_ms=Times(eager=Time(ms, ms * 0.99, ms * 1.01, 90, True)),
        speedup=Speedup("eager", *speedup[:3]) if speedup else None,
    )


def without(impl: str, status: str, **case):
    return Record("attention", impl, {"seq": 512} | case, "float16", "cuda:0", status, reason=PROBLEM)


BASE = timed("sdpa", 0.81, (1.0, 1.0, 1.0))
FAST = timed("v5_parts", 0.146, (5.55, 5.54, 5.61))
NEXT = timed("v4_scheduled", 0.178, (4.56, 4.55, 4.57))
SLOW = timed("eager", 2.0, (0.0975, 0.0970, 0.0980))
FEW = timed("fast", 0.5, (1.62, 1.62e-3, 1620.0))  # of too few rounds: nothing is known
