"""Records of unlike devices: apart in charts and tables, with a sentence; of like ones as ever."""

from __future__ import annotations

import pytest

from fusescope.charts.bench import sweep
from fusescope.charts.tables import cases
from fusescope.cli.tables.records import show
from fusescope.core.machine.conditions import Conditions, unlike
from fusescope.core.records import Record, Time, Times


def records(*devices):
    time = Times(eager=Time(1.0, 0.9, 1.1, 10, True))
    return [
        Record(
            *("add", impl, {"n": 1000 * n}, "float32", "cuda:0", "ok"),
            time_ms=time,
            conditions=Conditions(device_name=name),
        )
        for n, name in enumerate(devices, 1)
        for impl in ("eager", "v1")
    ]


@pytest.mark.parametrize("devices", [("H200", "H200"), (None, None)])
def test_like_devices(devices):
    some = records(*devices)
    assert unlike(some) is None and list(cases(some)) == ["n=1000", "n=2000"]
    assert len(sweep.curves(some, "n", "latency", "eager").data) == 2


def test_unlike_devices():
    some = records("H200", "H100", "H200")
    sentence = "Measured on unlike devices (H100, H200): times of one device only are compared."
    assert unlike(some) == sentence and sentence in show(some, "eager", {})
    assert list(cases(some)) == ["n=1000, H200", "n=2000, H100", "n=3000, H200"]
    fig = sweep.curves(some, "n", "latency", "eager")
    assert {d.name: list(d.x) for d in fig.data if "v1" in d.name} == {
        "v1 on H200": [1000, 3000],
        "v1 on H100": [2000],
    }
