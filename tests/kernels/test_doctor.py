"""Every cause that the doctor knows is brought about for real, and its finding names the cause and the
fix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from fusescope.core.doctor import diagnose, examine
from fusescope.core.errors import BuildError
from fusescope.core.machine import nvml, toolchain
from fusescope.kernels import report
from fusescope.kernels.build import build

pytestmark = pytest.mark.slow

EXAMINE = (
    "import json, dataclasses; from fusescope.core.doctor import examine\n"
    "print(json.dumps([dataclasses.asdict(f) for f in examine()]))"
)
needs_nvcc = pytest.mark.skipif(toolchain.detect().nvcc is None, reason="no nvcc on this machine")

FAKE_NVML = """
NVML_CLOCK_SM = 1
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


# ---- what is missing
# -------------------------------------------------------------------------------------------------


def test_a_machine_without_a_gpu_is_warned_not_failed():
    if nvml.problem() is None:
        pytest.skip("this machine has an NVIDIA driver")
    found = finding("driver")
    assert (
        found.status == "warn"
        and "CUDA kernels compile but do not run" in found.says
        and "nvidia-driver" in found.fix
    )


def test_no_nvcc(project, monkeypatch):
    monkeypatch.setenv("CUDACXX", str(project.bin / "nvcc"))
    found = finding("nvcc")
    assert (
        "nvcc, the CUDA compiler, is missing" in found.says
        and found.status in ("warn", "fail")
        and "cuda-toolkit" in found.fix
    )
    with pytest.raises(BuildError, match=r"nvcc is missing.*cuda-toolkit") as error:
        build(archs=["sm_80"], log=project.log)
    assert error.value.causes[0].check == "nvcc"


def test_no_gxx(project, monkeypatch):
    monkeypatch.setenv("CXX", str(project.bin / "g++"))
    assert finding("g++").status == "fail" and "install g++" in finding("g++").fix.replace("gcc-c++", "g++")
    with pytest.raises(BuildError, match=r"g\+\+ missing, so the extension cannot be built; fix: "):
        build(units=("cpu",), log=project.log)


def test_no_ninja_and_no_packages(project):
    """An interpreter without its site-packages and without ninja beside it, on a PATH that has none."""
    project.bin.mkdir()
    python = project.bin / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    for tool in ("g++", "gcc", "ld", "objcopy", "nm", "c++filt"):
        (project.bin / tool).symlink_to(shutil.which(tool))
    environment = project.environment(PATH=str(project.bin), PYTHONNOUSERSITE="1")

    def run(code: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [python, "-S", "-c", code], env=environment, capture_output=True, text=True, timeout=60
        )

    findings = {f["check"]: f for f in json.loads(run(EXAMINE).stdout)}
    assert findings["ninja"]["status"] == "fail" and findings["ninja"]["fix"].endswith("-m pip install ninja")
    assert findings["packages"]["status"] == "warn" and "streamlit" in findings["packages"]["says"]
    assert "requirements.txt" in findings["packages"]["fix"]
    assert findings["torch"]["status"] == "fail" and "torch==" in findings["torch"]["fix"]
    assert "nvidia-ml-py" in findings["driver"]["fix"]
    failed = run("from fusescope.kernels.build import build; build(units=('cpu',))")
    assert "BuildError: ninja and torch missing" in failed.stderr and "pip install ninja" in failed.stderr


def test_no_binutils(project):
    project.bin.mkdir()
    for tool in ("g++", "gcc", "ld", "nm"):
        (project.bin / tool).symlink_to(shutil.which(tool))
    found = examined(project, "binutils", PATH=str(project.bin))
    assert (
        found["status"] == "fail"
        and "objcopy, c++filt missing" in found["says"]
        and "binutils" in found["fix"]
    )


# ---- versions that do not fit
# ----------------------------------------------------------------------------------------


def test_nvcc_too_old_and_too_new(project, monkeypatch):
    for release, status, word in (("12.4", "fail", "too old"), ("14.0", "warn", "newer than what was tried")):
        monkeypatch.setenv(
            "CUDACXX",
            str(project.program("nvcc", f'echo "Cuda compilation tools, release {release}, V{release}.1"')),
        )
        found = finding("nvcc")
        assert found.status == status and word in found.says and release in found.says and found.fix


@needs_nvcc
def test_nvcc_and_torch_of_different_cuda(project):
    packages = fake_torch(project, "2.11.0+cu118", "11.8")
    found = examined(project, "CUDA versions", packages)
    assert (
        found["status"] == "fail"
        and "torch of CUDA 11.8" in found["says"]
        and "cuda-11.8/bin/nvcc" in found["fix"]
    )


@needs_nvcc
def test_a_driver_older_than_nvcc(project):
    found = examined(project, "CUDA versions", fake_gpu(project, (8, 6), 11040))
    assert (
        found["status"] == "fail"
        and "driver runs CUDA up to 11.4" in found["says"]
        and "update the driver" in found["fix"]
    )


def test_a_torch_that_is_too_old_and_one_without_cuda(project):
    assert "torch 2.4.0 is too old" in examined(project, "torch", fake_torch(project, "2.4.0", None))["says"]
    found = examined(project, "torch", project.build.parent / "packages", fake_gpu(project, (9, 0)))
    assert found["status"] == "fail"
    (project.build.parent / "packages" / "torch" / "version.py").write_text(
        "__version__ = '2.13.0+cpu'\ncuda = None\n"
    )
    found = examined(project, "torch", project.build.parent / "packages", project.build.parent / "gpu")
    assert found["status"] == "warn" and "has no CUDA, so the GPU is not used" in found["says"]


@needs_nvcc
def test_a_host_compiler_too_new_for_nvcc(project, monkeypatch):
    newest = toolchain.detect().max_gcc
    real = shutil.which("g++")
    too_new = (
        f'case "$1" in --version) echo "g++ (Future) {newest + 1}.1.0"; exit;; esac\n'
        f'exec {real} -U__GNUC__ -D__GNUC__={newest + 1} "$@"'
    )
    monkeypatch.setenv("CXX", str(project.program("g++", too_new)))
    found = finding("g++")
    assert (
        found.status == "fail"
        and f"takes gcc up to {newest}" in found.says
        and f"CXX=g++-{newest}" in found.fix
    )
    result = build(archs=["sm_80"], units=("cuda",), log=project.log)  # the real nvcc refuses it too
    assert not result.ok
    cause = next(c for c in result.causes if c["check"] == "host compiler")
    assert f"takes gcc up to {newest}" in cause["says"] and f"CXX=g++-{newest}" in cause["fix"]
    assert any(f.check == "last build: host compiler" for f in examine())


def test_gcc_and_gxx_apart(project, monkeypatch):
    project.program("gcc", 'echo "gcc (Old) 9.5.0"')
    monkeypatch.setenv("PATH", f"{project.bin}{os.pathsep}{os.environ['PATH']}")
    found = finding("gcc and g++")
    assert found.status == "warn" and "gcc is 9.5.0, g++ is" in found.says and "gcc-9" in found.fix


def test_a_gcc_without_its_cxx_part(project, tmp_path):
    """g++ that cannot find its own cc1plus: what a gcc of one version with the g++ of another gives."""
    source = tmp_path / "a.cpp"
    source.write_text("int f();\n")
    done = subprocess.run(
        ["g++", f"-B{tmp_path}/", "-no-canonical-prefixes", "-c", source],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path), "GCC_EXEC_PREFIX": f"{tmp_path}/none/"},
        executable=shutil.which("g++"),
    )
    assert done.returncode != 0
    found = diagnose(done.stderr)
    assert found and found[0].check == "gcc and g++" and "cc1plus" in found[0].says, done.stderr


# ---- headers and symbols
# ---------------------------------------------------------------------------------------------


def test_a_deleted_header_of_ours(project):
    (project.cuda / "common" / "interface.h").unlink()
    found = finding("header")
    assert found.status == "fail" and "interface.h is missing" in found.says and "git" in found.fix
    result = build(units=("cpu",), log=project.log)
    assert not result.ok and not result.libraries
    assert "interface.h is missing (included at" in result.causes[0]["says"]


@needs_nvcc
def test_cutlass_missing(gpu_project, monkeypatch):
    if toolchain.detect().cutlass:
        pytest.skip("CUTLASS is installed here")
    (gpu_project.add / "v3_cute.cu").write_text(
        '// Uses CuTe.\n#include <cute/tensor.hpp>\n#include "add.cuh"\n'
    )
    found = finding("header")
    assert (
        found.status == "fail"
        and "cute/tensor.hpp" in found.says
        and "CUTLASS" in found.says
        and "nvidia-cutlass==" in found.fix
    )
    result = build(archs=["sm_80"], units=("cuda",), log=gpu_project.log)
    assert [c["fix"] for c in result.causes] == [found.fix]


@pytest.mark.parametrize(
    ("header", "fix"),
    [
        ("Python.h", "python3-dev"),
        ("torch/csrc/stable/tensor.h", "torch=="),
        ("cuda_runtime.h", "cuda-toolkit"),
    ],
)
def test_headers_of_others(header, fix, tmp_path):
    source = tmp_path / "a.cpp"
    source.write_text(f"#include <{header}>\n")
    done = subprocess.run(["g++", "-c", source, "-o", tmp_path / "a.o"], capture_output=True, text=True)
    if done.returncode == 0:
        pytest.skip(f"this g++ finds {header} without being told where")
    found = diagnose(done.stderr)
    assert (
        found[0].check == "header" and header in found[0].says and fix in found[0].fix.replace("devel", "dev")
    )


def test_undefined_symbol_when_linking_and_when_loading(project, tmp_path):
    project.edit(
        project.add / "add.cuh",
        "struct AddArgs {",
        "namespace fs {\nint promised(const float* x, int n);\n}\nstruct AddArgs {",
    )
    source = tmp_path / "caller.cpp"
    source.write_text('#include "add.cuh"\nint call() { return fs::promised(nullptr, 1); }\n')
    compile_ = ["g++", "-shared", "-fPIC", f"-I{project.add}", str(source), "-o", str(tmp_path / "caller.so")]
    linked = subprocess.run([*compile_, "-Wl,--no-undefined"], capture_output=True, text=True)
    subprocess.run(compile_, check=True)
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import ctypes, os; ctypes.CDLL({str(tmp_path / 'caller.so')!r}, os.RTLD_NOW)",
        ],
        capture_output=True,
        text=True,
    )
    for text in (linked.stderr, loaded.stderr):
        found = diagnose(text)[0]
        assert found.check == "undefined symbol", text
        assert (
            "fs::promised(float const*, int)" in found.says and "declared in cuda/add/add.cuh:6" in found.says
        )


@needs_nvcc
def test_undefined_function_on_the_device(gpu_project):
    (gpu_project.add / "promised.cuh").write_text("#pragma once\n__device__ float promised(float x);\n")
    (gpu_project.add / "v3_calls.cu").write_text(
        "// Calls what nobody wrote.\n"
        '#include "../common/launch.cuh"\n#include "add.cuh"\n#include "promised.cuh"\n'
        "__global__ void calls(float* out) { *out = promised(*out); }\n"
        "FUSESCOPE_KERNEL(const AddArgs* args, void* stream) {\n"
        "  calls<<<1, 1>>>((float*)args->out);\n  return launch_error();\n}\n"
    )
    result = build(archs=["sm_80"], units=("cuda",), log=gpu_project.log)
    (failed,) = result.failed
    assert failed.variant == "v3_calls" and "promised" in failed.error
    (cause,) = result.causes
    assert (
        cause["check"] == "undefined symbol"
        and "promised(float): declared in cuda/add/promised.cuh:2" in cause["says"]
    )


# ---- the build folder
# ------------------------------------------------------------------------------------------------


def test_a_stale_lock_of_a_dead_process(project):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (report.folder_of(toolchain.detect()) / "lock").write_text(str(dead.pid))
    found = finding("lock")
    assert (
        found.status == "warn" and f"process {dead.pid} died" in found.says and found.fix == "fusescope build"
    )
    build(units=("cpu",), log=project.log)
    assert finding("lock").status == "ok"


def test_a_stale_cache_of_another_torch(project):
    other = project.build / "torch1.0-0000000000"
    other.mkdir()
    (other / "report.json").write_text("{}")
    found = finding("build cache")
    assert found.status == "warn" and "stale cache" in found.says and found.fix == f"rm -r '{other}'"
    shutil.rmtree(other)
    (report.folder_of(toolchain.detect()) / "report.json").write_text("{ torn")
    assert "torn" in finding("build cache").says and "--clean" in finding("build cache").fix


@needs_nvcc
def test_a_gpu_that_the_build_does_not_cover(gpu_project):
    build(archs=["sm_80"], log=gpu_project.log)
    found = examined(gpu_project, "architecture", fake_gpu(gpu_project, (9, 0)))
    assert found["status"] == "warn" and "sm_90a is here, built is sm_80" in found["says"]
    assert found["fix"] == "fusescope build --arch sm_80 sm_90a"
    shutil.rmtree(gpu_project.build.parent / "gpu")
    assert (
        examined(gpu_project, "architecture", fake_gpu(gpu_project, (8, 6)))["status"] == "ok"
    )  # sm_80 code runs on 8.6
    shutil.rmtree(gpu_project.build.parent / "gpu")
    found = examined(gpu_project, "architecture", fake_gpu(gpu_project, (42, 0)))
    assert (
        found["status"] == "fail"
        and "does not support sm_420a" in found["says"]
        and "newer CUDA toolkit" in found["fix"]
    )


@pytest.mark.parametrize("size", ["16k", "100k"])  # too small for the objects; too small for the library
def test_no_space(size, project, tmp_path, monkeypatch):
    """A tiny file system: the doctor says so before, the build after."""
    small = tmp_path / "small"
    small.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", small]).returncode != 0
    ):
        pytest.skip("mounting a tiny file system needs root")
    try:
        monkeypatch.setenv("FUSESCOPE_BUILD", str(small / "build"))
        found = finding("space")
        assert found.status == "fail" and "no space" in found.says and "FUSESCOPE_BUILD" in found.fix
        with pytest.raises(BuildError) as error:
            build(units=("cpu",), log=project.log)
        assert error.value.causes[0].check == "space" and "no space left" in str(error.value)
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_build_folder_that_may_not_be_written(project, monkeypatch):
    blocked = project.build.parent / "blocked"
    blocked.write_text("a file where a folder should be")
    monkeypatch.setenv("FUSESCOPE_BUILD", str(blocked / "build"))
    with pytest.raises(BuildError, match="cannot be written"):
        build(units=("cpu",), log=project.log)


def test_folders_that_are_none(project, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(tmp_path / "file" / "profiles"))
    monkeypatch.setenv("FUSESCOPE_CUDA", str(tmp_path / "nowhere"))
    assert "file is no folder" in finding("runs").says and "FUSESCOPE_PROFILES" in finding("runs").fix
    assert finding("kernels").status == "fail" and "FUSESCOPE_CUDA" in finding("kernels").fix
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(tmp_path))
    assert finding("runs").status == "warn" and "may only be read" in finding("runs").says


# ---- the rest
# --------------------------------------------------------------------------------------------------------


def test_each_finding_that_is_not_ok_names_a_fix(project):
    findings = examine()
    assert {"driver", "torch", "packages", "nvcc", "g++", "ninja", "header", "build cache", "space"} <= {
        f.check for f in findings
    }
    assert all(f.fix for f in findings if f.status != "ok") and all(
        f.status in ("ok", "warn", "fail") for f in findings
    )


def test_an_error_in_a_source_is_named_by_the_next_examination(project):
    project.edit(project.add / "cpu.cpp", "return nullptr;", "return nonsense;")
    build(units=("cpu",), log=project.log)
    found = finding("last build: source")
    assert found.status == "fail" and "add/cpu" in found.says and "nonsense" in found.says


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("nvcc fatal   : Unsupported gpu architecture 'compute_42'", "architecture"),
        ("ptxas error : Instruction 'wgmma.fence' not supported on .target 'sm_80'", "architecture"),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "architecture",
        ),
        ("g++: fatal error: Killed signal terminated program cc1plus", "memory"),
        ("/bin/sh: 1: nvcc: not found", "nvcc"),
        ("/usr/bin/ld: cannot find -lcudart_static: No such file or directory", "CUDA toolkit"),
        ("CUDA driver version is insufficient for CUDA runtime version", "driver"),
        ("all is well", None),
    ],
)
def test_words_of_other_programs(text, check):
    found = diagnose(text)
    assert (found[0].check if found else None) == check
    assert all(f.fix for f in found)


def test_python_headers_are_where_they_are_looked_for():
    there = Path(sysconfig.get_path("include"), "Python.h").is_file()
    assert finding("Python headers").status == ("ok" if there else "warn")
