"""What the doctor says of sources and build folders that are broken, each brought about for real: its finding
names the cause and the fix."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from fusescope.core.doctor import diagnose
from fusescope.core.errors import BuildError
from fusescope.core.machine import toolchain
from fusescope.kernels import report
from fusescope.kernels.build import build
from tests.kernels.doctor_tools import examined, fake_gpu, finding, needs_nvcc

pytestmark = pytest.mark.slow


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


@pytest.mark.long
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


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("size", ["100k", "16k"])  # too small for the library; too small for the objects
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


def test_an_error_in_a_source_is_named_by_the_next_examination(project):
    project.edit(project.add / "cpu.cpp", "return nullptr;", "return nonsense;")
    build(units=("cpu",), log=project.log)
    found = finding("last build: source")
    assert found.status == "fail" and "add/cpu" in found.says and "nonsense" in found.says
