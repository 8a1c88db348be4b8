"""Telemetry: what a sample holds, with NVML played by a fake library, and with the process alone."""

import ctypes
import json
import os
import time

import pyarrow.parquet as pq
import pytest

from fusescope.profiling.collect import memory, telemetry

ANSWERS = {
    "nvmlDeviceGetCurrentClocksEventReasons": 0x24,
    "nvmlDeviceGetPowerUsage": 345_600,
    "nvmlDeviceGetTotalEnergyConsumption": 12_500,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetUtilizationRates": [97, 40],
    "nvmlDeviceGetMemoryInfo": [1000, 400, 600],
}


class FakeNvml:
    """Fills in what NVML would, through the same pointers; a function that is not in ANSWERS is not there, as
    in old drivers."""

    def __init__(self, answers=ANSWERS, status=0):
        def fill(value):
            def call(handle, *rest):
                target = rest[-1]._obj
                if isinstance(value, list):
                    target[:] = value
                else:
                    target.value = value
                return 0

            return call

        self.nvmlInit_v2 = lambda: status
        self.nvmlDeviceGetHandleByUUID = lambda uuid, handle: 0
        self.nvmlDeviceGetClockInfo = lambda handle, which, target: (
            setattr(target._obj, "value", 1000 * which.value) or 0
        )
        for name, value in answers.items():
            setattr(self, name, fill(value))


def test_a_gpu_is_read_through_nvml(tmp_path, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeNvml())
    with telemetry.watch("cuda:0", "GPU-1", tmp_path / "telemetry.parquet", hz=100) as watch:
        time.sleep(0.1)
    rows = pq.read_table(tmp_path / "telemetry.parquet").to_pylist()
    facts = json.loads((tmp_path / "telemetry.json").read_text())
    assert (
        len(rows) == facts["count"] >= 3
        and watch.source == facts["source"] == "nvml"
        and facts["note"] is None
    )
    last = rows[-1]
    assert (last["sm_mhz"], last["memory_mhz"], last["temperature_c"], last["power_w"], last["energy_j"]) == (
        1000,
        2000,
        61,
        345.6,
        12.5,
    )
    assert (
        last["gpu_percent"],
        last["memory_percent"],
        last["memory_used_bytes"],
        last["memory_total_bytes"],
    ) == (97, 40, 600, 1000)
    assert last["reasons"] == 0x24 and last["throttled"] == "software thermal slowdown"
    assert facts["throttled"] == 1.0 and facts["reasons"] == ["software thermal slowdown"]
    times = [r["ts_ns"] for r in rows]
    assert times == sorted(times) and abs(times[0] - time.time_ns()) < 60e9  # the run's clock: Unix time


def test_what_a_driver_does_not_say_is_missing(tmp_path, monkeypatch):
    old = {"nvmlDeviceGetCurrentClocksThrottleReasons": 0x1}
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeNvml(old))
    with telemetry.watch("cuda:0", "GPU-1", tmp_path / "t.parquet"):
        pass
    row = pq.read_table(tmp_path / "t.parquet").to_pylist()[0]
    assert row["power_w"] is None and row["reasons"] == 1 and row["throttled"] is None


@pytest.mark.parametrize(
    ("uuid", "status", "says"), [("GPU-1", 3, "error 3"), (None, 0, "UUID is not known")]
)
def test_without_nvml_the_process_is_recorded_and_said(uuid, status, says, tmp_path, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeNvml(status=status))
    with telemetry.watch("cuda:0", uuid, tmp_path / "t.parquet") as watch:
        pass
    facts = json.loads((tmp_path / "t.json").read_text())
    assert watch.source == "process" and says in facts["note"] and facts["throttled"] is None


def test_on_the_cpu_the_process_stands_for_the_device(tmp_path):
    with telemetry.watch("cpu", None, tmp_path / "t.parquet", hz=50):
        end = time.process_time() + 0.1
        while time.process_time() < end:
            sum(i * i for i in range(10_000))
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert all(r["rss_bytes"] > 1 << 20 for r in rows) and any(r["cpu_percent"] for r in rows[1:])
    assert "no GPU" in json.loads((tmp_path / "t.json").read_text())["note"]


def test_a_process_that_is_gone_leaves_holes():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert telemetry.process(pid)() == {"rss_bytes": None, "cpu_percent": None}


def test_a_reader_that_fails_leaves_a_hole_and_the_rest_goes_on(tmp_path):
    def broken():
        raise RuntimeError("no answer")

    with telemetry.Telemetry([broken, lambda: {"power_w": 5.0}], tmp_path / "t.parquet", "nvml", hz=200):
        time.sleep(0.02)
    assert {r["power_w"] for r in pq.read_table(tmp_path / "t.parquet").to_pylist()} == {5.0}


def test_memory_on_the_cpu_says_what_it_is(tmp_path):
    with memory.recorded("cpu", lambda name: tmp_path / name):
        pass
    found = json.loads((tmp_path / "memory.json").read_text())
    assert (
        found["rss_peak_bytes"] > 1 << 20
        and found["allocated_peak_bytes"] is None
        and "whole process" in found["note"]
    )
    assert memory.allocator("cpu")() == {}


@pytest.mark.gpu
def test_memory_on_a_gpu(tmp_path):
    import torch

    from fusescope.profiling.collect import snapshot

    with memory.recorded("cuda:0", lambda name: tmp_path / name):
        torch.zeros(1 << 20, device="cuda:0")
    found = json.loads((tmp_path / "memory.json").read_text())
    assert found["allocated_peak_bytes"] >= 4 << 20
    assert (
        snapshot.load(tmp_path / "memory-snapshot.pickle", lambda name: tmp_path / name)["rows"]["memory"] > 0
    )


@pytest.mark.gpu
def test_telemetry_of_a_gpu(tmp_path):
    from fusescope.core.machine import environment

    uuid = environment.gpu_of("cuda:0")["uuid"]
    with telemetry.watch("cuda:0", uuid, tmp_path / "t.parquet") as watch:
        time.sleep(0.5)
    assert (
        watch.source == "nvml"
        and watch.samples[-1]["sm_mhz"] > 0
        and watch.samples[-1]["memory_used_bytes"] > 0
    )
