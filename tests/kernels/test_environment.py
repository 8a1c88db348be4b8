"""Facts about the machine, and which GPU CUDA means by a number."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from fusescope.core.machine import environment, nvml

SLOW = {
    "index": 0,
    "uuid": "GPU-aaaa",
    "name": "Slow",
    "compute_capability": "7.5",
    "memory_bytes": 6 << 30,
    "sms": 30,
    "speed": 1,
    "processes": [],
}
FAST = SLOW | {"index": 1, "uuid": "GPU-bbbb", "name": "Fast", "compute_capability": "9.0", "speed": 2}
THIRD = SLOW | {"index": 2, "uuid": "GPU-abcd", "name": "Third", "speed": 1}

KEYS = {
    "device",
    "device_name",
    "device_uuid",
    "compute_capability",
    "arch",
    "sms",
    "l2_bytes",
    "memory_bytes",
    "driver",
    "cuda",
    "torch",
    "torch_cuda",
    "python",
    "nvcc",
    "gxx",
    "cpu_name",
    "cpu_threads",
    "llc_bytes",
    "git_commit",
    "git_dirty",
    "app_version",
}


@pytest.fixture
def three(monkeypatch):
    """A machine with three GPUs; the test's own process must not let torch answer instead."""
    monkeypatch.setattr(environment, "gpus", lambda: [SLOW, FAST, THIRD])
    monkeypatch.setattr(nvml, "versions", lambda: ("580.1", "13.0"))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


def test_the_cpu_is_described_fully_and_without_torch():
    code = (
        "import json, sys; from fusescope.core.machine import environment; facts = environment.collect()\n"
        "heavy = [m for m in ('torch', 'numpy') if m in sys.modules]\n"
        "print(json.dumps([facts, environment.devices(), environment.gpus(), heavy]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    facts, devices, gpus, imported = json.loads(done.stdout)
    assert set(facts) == KEYS and imported == []
    assert (
        facts["device"] == "cpu"
        and facts["device_name"] == facts["cpu_name"]
        and facts["device_uuid"] is None
    )
    assert (
        facts["cpu_threads"] >= 1
        and facts["memory_bytes"] > 1 << 28
        and facts["torch"]
        and facts["app_version"]
    )
    assert devices[-1] == "cpu" and isinstance(gpus, list)
    assert os.uname().nodename not in {v for v in facts.values() if isinstance(v, str)}


def test_without_an_order_cuda_puts_the_fastest_first(three, monkeypatch):
    names = lambda: [g["name"] for g in environment.visible_gpus()]  # noqa: E731
    assert names() == ["Fast", "Slow", "Third"]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert names() == ["Slow", "Fast", "Third"]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", ["Slow"]),
        ("2,0", ["Third", "Fast"]),
        ("GPU-bbbb", ["Fast"]),
        ("GPU-abcd,1", ["Third", "Slow"]),
        ("", []),
        ("-1", []),
        ("0,9,1", ["Fast"]),  # CUDA stops at the first that is not there
        ("GPU-a", []),  # fits two
    ],
)
def test_visible_devices_are_followed(three, monkeypatch, visible, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [g["name"] for g in environment.visible_gpus()] == expected


def test_a_gpu_is_described_by_nvml(three):
    facts = environment.collect("cuda:0")
    assert facts["device_name"] == "Fast" and facts["device_uuid"] == "GPU-bbbb"
    assert (facts["compute_capability"], facts["arch"], facts["sms"]) == ("9.0", "sm_90a", 30)
    assert (facts["driver"], facts["cuda"]) == ("580.1", "13.0")
    assert (
        environment.collect("cuda:1")["arch"] == "sm_75"
        and environment.collect("cuda")["device_uuid"] == "GPU-bbbb"
    )


def test_devices_that_are_not_there_are_named_with_what_is(three):
    with pytest.raises(
        ValueError,
        match=r"no device cuda:7 here; there is cuda:0 \(Fast\), cuda:1 \(Slow\), cuda:2 \(Third\), cpu",
    ):
        environment.collect("cuda:7")
    with pytest.raises(ValueError, match="a device is cpu, cuda or cuda:N, not 'gpu0'"):
        environment.collect("gpu0")


def test_a_gpu_is_of_no_use_to_a_torch_without_cuda(three, monkeypatch):
    from dataclasses import replace

    chain = environment.toolchain.detect()
    monkeypatch.setattr(environment.toolchain, "detect", lambda: replace(chain, torch_cuda=None))
    assert environment.devices() == ["cpu"]
    monkeypatch.setattr(environment.toolchain, "detect", lambda: replace(chain, torch_cuda="13.0"))
    assert environment.devices() == ["cuda:0", "cuda:1", "cuda:2", "cpu"]


def test_nvidia_smi_answers_where_the_nvml_package_is_missing(monkeypatch, tmp_path):
    script = tmp_path / "nvidia-smi"
    script.write_text("#!/bin/sh\necho '0, GPU-1234, NVIDIA H200, 9.0, 143771, 580.95.05'\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(nvml, "problem", lambda: "the Python package nvidia-ml-py is missing")
    nvml._by_nvidia_smi.cache_clear()
    try:
        (gpu,) = nvml.gpus()
        assert (gpu["name"], gpu["compute_capability"], gpu["memory_bytes"]) == (
            "NVIDIA H200",
            "9.0",
            143771 << 20,
        )
        assert nvml.versions() == ("580.95.05", None) and "driver" not in gpu
    finally:
        nvml._by_nvidia_smi.cache_clear()


@pytest.mark.gpu
def test_cuda_and_nvml_mean_the_same_gpu():
    import torch

    torch.cuda.init()
    for i in range(torch.cuda.device_count()):
        facts, properties = environment.collect(f"cuda:{i}"), torch.cuda.get_device_properties(i)
        assert (
            facts["device_uuid"] == f"GPU-{properties.uuid}"
            and facts["sms"] == properties.multi_processor_count
        )
        assert facts["l2_bytes"] == properties.L2_cache_size
