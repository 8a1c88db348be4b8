"""What tests of the doctor share: one finding, and the machines of others, by modules that stand in for torch
and NVML."""

import json
import os
from pathlib import Path

import pytest

from fusescope.core.doctor import examine
from fusescope.core.machine import toolchain

EXAMINE = (
    "import json, dataclasses; from fusescope.core.doctor import examine\n"
    "print(json.dumps([dataclasses.asdict(f) for f in examine()]))"
)

needs_nvcc = pytest.mark.skipif(toolchain.detect().nvcc is None, reason="no nvcc on this machine")

FAKE_NVML = """
NVML_CLOCK_SM = 1
NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlSystemGetDriverVersion(): return "580.1"
def nvmlSystemGetCudaDriverVersion_v2(): return DRIVER_CUDA
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(i): return i
def nvmlDeviceGetCudaComputeCapability(h): return CC
def nvmlDeviceGetNumGpuCores(h): return 1024
def nvmlDeviceGetMaxClockInfo(h, k): return 1500
def nvmlDeviceGetMemoryInfo(h): raise NVMLError("not supported")
def nvmlDeviceGetUUID(h): return "GPU-1234"
def nvmlDeviceGetName(h): return "Some GPU"
def nvmlDeviceGetComputeMode(h): return 3
def nvmlDeviceGetComputeRunningProcesses(h): return []
def nvmlDeviceGetGraphicsRunningProcesses(h): return []
"""


def finding(check: str, findings=None):
    found = [f for f in (examine() if findings is None else findings) if f.check == check]
    assert found, f"no finding of {check}"
    return found[0]


def examined(project, check: str, *first_on_path: Path, **environment: str) -> dict:
    """One finding of a fresh process whose interpreter looks for modules in these folders first."""
    search = os.pathsep.join(str(p) for p in (*first_on_path, project.environment()["PYTHONPATH"]))
    done = project.python(EXAMINE, PYTHONPATH=search, **environment)
    assert done.returncode == 0, done.stderr
    return next(f for f in json.loads(done.stdout) if f["check"] == check)


def fake_torch(project, version: str, cuda: str | None) -> Path:
    folder = project.build.parent / "packages"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("")
    (folder / "torch" / "version.py").write_text(f"__version__ = {version!r}\ncuda: object = {cuda!r}\n")
    return folder


def fake_gpu(project, capability: tuple[int, int], driver_cuda: int = 13000) -> Path:
    folder = project.build.parent / "gpu"
    folder.mkdir()
    (folder / "pynvml.py").write_text(f"CC = {capability}\nDRIVER_CUDA = {driver_cuda}\n{FAKE_NVML}")
    return folder
