"""What the doctor says of tools and packages that are missing or do not fit, each brought about for real:
its finding names the cause and the fix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from fusescope.core.doctor import diagnose, examine, tools
from fusescope.core.errors import BuildError
from fusescope.core.machine import nvml, toolchain
from fusescope.kernels.build import build
from tests.kernels.doctor_tools import EXAMINE, examined, fake_gpu, fake_torch, finding, needs_nvcc

pytestmark = pytest.mark.slow


def test_a_machine_without_a_gpu_is_warned_not_failed():
    if nvml.problem() is None:
        pytest.skip("this machine has an NVIDIA driver")
    found = finding("driver")
    assert (
        found.status == "warn"
        and "CUDA kernels compile but do not run" in found.says
        and "nvidia-driver" in found.fix
    )


def test_without_recorded_runs_none_are_promised(profiles, monkeypatch):
    """A checkout without them was told that "CPU kernels and recorded runs work"."""
    monkeypatch.setattr(nvml, "problem", lambda: "NVML cannot be opened")
    says = tools.driver([]).says
    assert "CPU kernels work" in says and f"{profiles / 'recorded'} has no recorded runs" in says
    (profiles / "recorded" / "20261120-112833-bench-00122c").mkdir(parents=True)
    assert tools.driver([]).says.endswith("CPU kernels and recorded runs work")


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


@pytest.fixture
def too_new(project, monkeypatch):
    """Of g++: the newest major version that nvcc takes, where g++ says and defines one more."""
    newest = toolchain.detect().max_gcc
    real = shutil.which("g++")
    script = (
        f'case "$1" in --version) echo "g++ (Future) {newest + 1}.1.0"; exit;; esac\n'
        f'exec {real} -U__GNUC__ -D__GNUC__={newest + 1} "$@"'
    )
    monkeypatch.setenv("CXX", str(project.program("g++", script)))
    return newest


@needs_nvcc
def test_a_host_compiler_too_new_for_nvcc(too_new):
    found = finding("g++")
    assert (
        found.status == "fail"
        and f"takes gcc up to {too_new}" in found.says
        and f"CXX=g++-{too_new}" in found.fix
    )


@needs_nvcc
@pytest.mark.long
def test_nvcc_refuses_it_too_and_the_cause_is_named(project, too_new):
    result = build(archs=["sm_80"], units=("cuda",), log=project.log)
    assert not result.ok
    cause = next(c for c in result.causes if c["check"] == "host compiler")
    assert f"takes gcc up to {too_new}" in cause["says"] and f"CXX=g++-{too_new}" in cause["fix"]
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


def test_each_finding_that_is_not_ok_names_a_fix(project):
    findings = examine()
    assert {"driver", "torch", "packages", "nvcc", "g++", "ninja", "header", "build cache", "space"} <= {
        f.check for f in findings
    }
    assert all(f.fix for f in findings if f.status != "ok") and all(
        f.status in ("ok", "warn", "fail") for f in findings
    )


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


def test_what_a_build_says_of_a_host_compiler_that_is_too_new():
    said = "#error -- unsupported GNU version! gcc versions later than 14 are not supported! The nvcc flag"
    (found,) = diagnose(f"crt/host_config.h:157:2: error: {said}")
    assert (found.check, found.status) == ("host compiler", "fail") and "takes gcc up to 14" in found.says
    assert "CXX=g++-14 fusescope build" in found.fix
