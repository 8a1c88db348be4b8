"""Facts about this machine and its GPUs, for records and pages: by NVML and files, never through a CUDA
context.

NVML numbers GPUs in PCI order; CUDA numbers those that CUDA_VISIBLE_DEVICES lets through. They meet by UUID
only.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import fusescope
from fusescope.core import paths, whole_files
from fusescope.core.machine import nvml, toolchain
from fusescope.core.machine.archs import arch_of


def collect(device: str = "cpu") -> dict[str, Any]:
    """The fingerprint stored with a run, as JSON values (sizes in bytes); what is unknown is None.

    Raises ValueError for a device this machine does not have. ``cuda`` is the newest CUDA the driver takes,
    ``l2_bytes`` of a GPU is known once a process with CUDA has asked (``remember_gpu``).
    """
    gpu = gpu_of(device)
    chain = toolchain.detect()
    commit, dirty = _git()
    cc = gpu["compute_capability"] if gpu else None
    driver, cuda = nvml.versions()
    return {
        "device": device,
        "device_name": _name(gpu),
        "device_uuid": gpu["uuid"] if gpu else None,
        "compute_capability": cc,
        "arch": arch_of(*(int(n) for n in cc.split("."))) if cc else None,
        "sms": gpu["sms"] if gpu else None,
        "l2_bytes": _remembered_l2(gpu["uuid"]) if gpu else None,
        "memory_bytes": gpu["memory_bytes"] if gpu else main_memory(),
        "driver": driver,
        "cuda": cuda,
        "torch": chain.torch_version,
        "torch_cuda": chain.torch_cuda,
        "python": platform.python_version(),
        "nvcc": chain.nvcc and chain.nvcc.version,
        "gxx": chain.gxx and chain.gxx.version,
        "cpu_name": cpu_name(),
        "cpu_threads": cpu_threads(),
        "llc_bytes": _last_level_cache(),
        "git_commit": commit,
        "git_dirty": dirty,
        "app_version": fusescope.__version__,
    }


def device_name(device: str) -> str:
    """What the device is called, as in ``collect``, which starts git and takes a tenth of a second. Raises
    ValueError for a device this machine does not have."""
    return _name(gpu_of(device))


def _name(gpu: dict[str, Any] | None) -> str:
    return gpu["name"] if gpu else cpu_name()


def cpu_threads() -> int:
    """The threads of the CPU that this process may use."""
    return len(os.sched_getaffinity(0))


def main_memory() -> int:
    """Bytes of main memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def gpus() -> list[dict[str, Any]]:
    """Every GPU of the machine in NVML's order: index, uuid, name, compute_capability "9.0", memory_bytes,
    sms, exclusive (one process at a time), processes [{pid, name, memory_bytes}]. Empty without a driver. The
    index is NVML's, not CUDA's: see ``gpu_of``."""
    return nvml.gpus()


def devices() -> list[str]:
    """What --device takes here: "cuda:0", … as CUDA numbers them, where torch has CUDA; "cpu" last."""
    count = len(visible_gpus()) if toolchain.detect().torch_cuda else 0
    return [f"cuda:{i}" for i in range(count)] + ["cpu"]


def gpu_of(device: str) -> dict[str, Any] | None:
    """The NVML facts of "cuda" or "cuda:1"; None for "cpu". ValueError for anything this machine does not
    have."""
    if device == "cpu":
        return None
    match = re.fullmatch(r"cuda(?::(\d+))?", device)
    if not match:
        raise ValueError(f"a device is cpu, cuda or cuda:N, not {device!r}")
    seen, index = visible_gpus(), int(match[1] or 0)
    if index >= len(seen):
        names = ", ".join([f"cuda:{i} ({g['name']})" for i, g in enumerate(seen)] + ["cpu"])
        raise ValueError(f"there is no device {device} here; there is {names}")
    return seen[index]


def visible_gpus() -> list[dict[str, Any]]:
    """The GPUs in CUDA's numbering. Where torch has CUDA initialised its own UUIDs say it; else
    CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are followed (without PCI_BUS_ID order CUDA puts the fastest
    first: most cores times clock)."""
    found = gpus()
    torch = sys.modules.get("torch")
    if found and torch is not None and torch.cuda.is_initialized():
        by_uuid = {g["uuid"]: g for g in found}
        uuids = [f"GPU-{torch.cuda.get_device_properties(i).uuid}" for i in range(torch.cuda.device_count())]
        if all(uuid in by_uuid for uuid in uuids):
            return [by_uuid[uuid] for uuid in uuids]
    return _visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))


def _visible(found: list[dict], chosen_devices: str | None, order: str | None) -> list[dict]:
    if order != "PCI_BUS_ID" and found:
        fastest = max(found, key=lambda g: g["speed"] or 0)
        found = [fastest] + [g for g in found if g is not fastest]
    if chosen_devices is None:
        return found
    chosen: list[dict] = []
    for word in chosen_devices.split(","):
        word = word.strip()
        if word.isdigit():
            match = found[int(word) : int(word) + 1]
        else:
            match = [g for g in found if word.startswith("GPU-") and g["uuid"].startswith(word)]
        if len(match) != 1 or match[0] in chosen:
            break  # CUDA stops at the first entry that names no device
        chosen.append(match[0])
    return chosen


def remember_gpu(index: int = 0) -> None:
    """Keep what only CUDA reports of a GPU (its L2 size) for processes without CUDA. Call it where torch has
    CUDA initialised."""
    import torch

    size = torch.cuda.get_device_properties(index).L2_cache_size
    uuid = gpu_of(f"cuda:{index}")["uuid"]
    known = whole_files.read_object(_known_gpus())
    if known.get(uuid) != size:
        whole_files.replace(_known_gpus(), json.dumps(known | {uuid: size}))


@lru_cache(maxsize=1)
def cpu_name() -> str:
    """Model name of the CPU as the system gives it."""
    text = Path("/proc/cpuinfo").read_text(errors="replace") if Path("/proc/cpuinfo").is_file() else ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def _remembered_l2(uuid: str) -> int | None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        for i in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(i)
            if f"GPU-{properties.uuid}" == uuid:
                return properties.L2_cache_size
    return whole_files.read_object(_known_gpus()).get(uuid)


def _known_gpus() -> Path:
    return paths.build_cache() / "gpus.json"


@lru_cache(maxsize=1)
def _last_level_cache() -> int | None:
    """Bytes of the largest cache of the first CPU."""
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        if match := re.fullmatch(r"(\d+)([KM])?", file.read_text().strip()):
            sizes.append(int(match[1]) * {None: 1, "K": 1 << 10, "M": 1 << 20}[match[2]])
    return max(sizes, default=None)


def _git() -> tuple[str | None, bool | None]:
    """Commit and whether tracked files differ from it; None outside a checkout."""
    if not (paths.ROOT / ".git").exists():
        return None, None
    command = ["git", "-C", str(paths.ROOT), "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    lines = done.stdout.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid")), None)
    if commit in (None, "(initial)"):  # git's word for a checkout without a commit
        return None, None
    return commit, any(not line.startswith("#") for line in lines)
