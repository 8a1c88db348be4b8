"""The doctor's checks of compilers, packages and headers."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from fusescope.core import paths
from fusescope.core.doctor.diagnosis import CUDA_TOOLS, CUTLASS, diagnose, toolkit_fix
from fusescope.core.doctor.findings import Finding, install, pip
from fusescope.core.doctor.requirements import needed, requirement
from fusescope.core.machine import nvml
from fusescope.core.machine.toolchain import Toolchain, find_cuda_tool

OLDEST_CUDA, NEWEST_CUDA, OLDEST_TORCH, OLDEST_GCC = (12, 8), 13, (2, 11), 11
PACKAGES = ("streamlit", "plotly", "pandas", "duckdb", "pyarrow", "numpy")


def driver(present: list[dict]) -> Finding:
    if present:
        return Finding(
            "driver", "ok", f"NVIDIA driver {nvml.versions()[0]}: {', '.join(g['name'] for g in present)}"
        )
    problem = nvml.problem()
    if problem and "nvidia-ml-py" in problem:
        return Finding("driver", "warn", f"{problem}: GPUs are not seen", pip("nvidia-ml-py"))
    if problem and "mismatch" in problem:
        return Finding(
            "driver",
            "fail",
            f"the NVIDIA driver was updated under a running kernel module ({problem})",
            "sudo reboot",
        )
    says = "no NVIDIA driver" if problem else "the NVIDIA driver sees no GPU"
    return Finding(
        "driver",
        "warn",
        f"{says}: CUDA kernels compile but do not run; {_without_gpu()}",
        f"on a machine with an NVIDIA GPU: {install('nvidia-driver', 'nvidia-driver')}; "
        "in a container start it with --gpus all",
    )


def _without_gpu() -> str:
    """What works without a GPU. A wheel, and a folder of runs elsewhere, come without recorded ones."""
    recorded = paths.profiles() / "recorded"
    if recorded.is_dir() and any(recorded.iterdir()):
        return "CPU kernels and recorded runs work"
    return f"CPU kernels work; {recorded} has no recorded runs: the repository has them in profiles/recorded"


def torch(chain: Toolchain, present: list[dict]) -> Finding:
    if chain.torch_dir is None:
        return Finding("torch", "fail", "torch is missing", pip(requirement("torch")))
    numbers = re.findall(r"\d+", chain.torch_version or "0")
    if tuple(int(n) for n in numbers[:2]) < OLDEST_TORCH:
        return Finding(
            "torch",
            "fail",
            f"torch {chain.torch_version} is too old; 2.11 to 2.13 work",
            pip(requirement("torch")),
        )
    if present and not chain.torch_cuda:
        says = f"torch {chain.torch_version} has no CUDA, so the GPU is not used"
        return Finding("torch", "warn", says, pip("--force-reinstall", requirement("torch")))
    return Finding(
        "torch",
        "ok",
        f"torch {chain.torch_version}, {f'CUDA {chain.torch_cuda}' if chain.torch_cuda else 'without CUDA'}",
    )


def packages() -> Finding:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if not missing:
        return Finding("packages", "ok", f"{', '.join(PACKAGES)} are there")
    says = (
        f"missing Python packages: {', '.join(missing)}; the pages need them, the headless verbs do without"
    )
    return Finding("packages", "warn", says, pip(*needed(missing)))


def nvcc(chain: Toolchain, present: list[dict]) -> Finding:
    toolkit = toolkit_fix()
    if chain.nvcc is None:
        named = f" (CUDACXX={os.environ['CUDACXX']} is no program)" if os.environ.get("CUDACXX") else ""
        says = f"nvcc, the CUDA compiler, is missing{named}: CUDA kernels are not compiled"
        return Finding("nvcc", "fail" if present else "warn", says, toolkit)
    version = _numbers(chain.nvcc.version)
    if version is None:
        return Finding("nvcc", "fail", f"{chain.nvcc.path} does not say its version", toolkit)
    if version < OLDEST_CUDA:
        return Finding(
            "nvcc", "fail", f"nvcc {chain.nvcc.version} is too old: CUDA 12.8 to 13.x is supported", toolkit
        )
    if version[0] > NEWEST_CUDA:
        says = f"nvcc {chain.nvcc.version} is newer than what was tried (12.8 to 13.x)"
        return Finding(
            "nvcc", "warn", says, "where something fails, install CUDA 13.x and point CUDACXX at its nvcc"
        )
    if chain.cuda_home is None:
        says = f"{chain.nvcc.path} has no CUDA folder with include/cuda_runtime.h"
        return Finding("nvcc", "fail", says, "CUDA_HOME=/the/folder/that/holds/include/cuda_runtime.h")
    return Finding("nvcc", "ok", f"nvcc {chain.nvcc.version} ({chain.nvcc.path})")


def versions_agree(chain: Toolchain) -> Finding | None:
    """nvcc against torch's CUDA and against what the driver runs: majors must agree, and the driver must not
    be older."""
    version = _numbers(chain.nvcc.version) if chain.nvcc else None
    if version is None:
        return None
    ours, torchs, drivers = chain.nvcc.version, _numbers(chain.torch_cuda), _numbers(nvml.versions()[1])
    if torchs and torchs[0] != version[0]:
        says = f"nvcc is of CUDA {ours}, torch of CUDA {chain.torch_cuda}: their major versions differ"
        fix = (
            f"install the CUDA {chain.torch_cuda} toolkit and set "
            f"CUDACXX=/usr/local/cuda-{chain.torch_cuda}/bin/nvcc"
        )
        return Finding("CUDA versions", "fail", says, fix)
    if drivers and drivers[0] < version[0]:
        says = (
            f"nvcc is of CUDA {ours}, the driver runs CUDA up to {nvml.versions()[1]}: "
            "kernels built here would not start"
        )
        return Finding(
            "CUDA versions",
            "fail",
            says,
            f"update the driver, or set CUDACXX to an nvcc of CUDA {drivers[0]}.x",
        )
    return Finding(
        "CUDA versions",
        "ok",
        f"nvcc {ours}, torch {chain.torch_cuda or 'without CUDA'}, driver {nvml.versions()[1] or 'none'}",
    )


def gxx(chain: Toolchain) -> Finding:
    if chain.gxx is None:
        named = f" (CXX={os.environ['CXX']} is no program)" if os.environ.get("CXX") else ""
        return Finding("g++", "fail", f"g++, the C++ compiler, is missing{named}", install("g++", "gcc-c++"))
    major, newest = chain.gxx.major, chain.max_gcc
    if major is None:
        return Finding("g++", "fail", f"{chain.gxx.path} does not say its version", install("g++", "gcc-c++"))
    if major < OLDEST_GCC:
        return Finding(
            "g++",
            "fail",
            f"g++ {chain.gxx.version} is too old: C++20 needs {OLDEST_GCC} or newer",
            install("g++-12", "gcc-toolset-12"),
        )
    if newest and major > newest:
        nvcc_version = chain.nvcc.version if chain.nvcc else ""
        says = (
            f"host compiler g++ {chain.gxx.version} is too new: nvcc {nvcc_version} takes gcc up to {newest}"
        )
        older = install(f"g++-{newest}", f"gcc-toolset-{newest}-gcc-c++")
        fix = f"{older} && CXX=g++-{newest} fusescope build"
        return Finding("g++", "fail", says, fix)
    return Finding(
        "g++", "ok", f"g++ {chain.gxx.version}" + (f" (nvcc takes up to {newest})" if newest else "")
    )


def gcc_and_gxx(chain: Toolchain) -> Finding | None:
    gcc, gxx = chain.gcc, chain.gxx
    if not gxx or not gcc or None in (gcc.major, gxx.major):
        return None
    if gcc.major == gxx.major:
        return Finding("gcc and g++", "ok", f"both {gxx.major}")
    says = (
        f"gcc is {gcc.version}, g++ is {gxx.version}: "
        "the build uses g++, but torch.compile and Triton mix the two"
    )
    return Finding(
        "gcc and g++",
        "warn",
        says,
        f"{install(f'g++-{gcc.major} gcc-{gcc.major}', 'gcc gcc-c++')}, or CC=gcc-{gxx.major}",
    )


def ninja(chain: Toolchain) -> Finding:
    if chain.ninja is None:
        return Finding("ninja", "fail", "ninja is missing", pip("ninja"))
    return Finding("ninja", "ok", f"ninja ({chain.ninja})")


def binutils() -> Finding:
    missing = [name for name in ("ld", "objcopy", "nm", "c++filt") if shutil.which(name) is None]
    if missing:
        return Finding("binutils", "fail", f"{', '.join(missing)} missing", install("binutils", "binutils"))
    return Finding("binutils", "ok", "ld, objcopy, nm and c++filt are there")


def sass(chain: Toolchain) -> Finding | None:
    """cuobjdump and nvdisasm: only reading SASS needs them."""
    if chain.nvcc is None:
        return None
    missing = [name for name in ("cuobjdump", "nvdisasm") if find_cuda_tool(chain, name) is None]
    if missing:
        return Finding(
            "SASS tools",
            "warn",
            f"{' and '.join(missing)} missing: a kernel's SASS cannot be shown",
            pip(*CUDA_TOOLS),
        )
    return Finding("SASS tools", "ok", "cuobjdump and nvdisasm are there")


def python_headers() -> Finding:
    header = Path(sysconfig.get_path("include"), "Python.h")
    if header.is_file():
        return Finding("Python headers", "ok", str(header))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    says = (
        "Python.h is missing: the kernels build without it, torch.compile and FlexAttention on the CPU do not"
    )
    return Finding("Python headers", "warn", says, install(f"python{version}-dev", f"python{version}-devel"))


def headers(chain: Toolchain) -> list[Finding]:
    """Every #include of cuda/ that names a file of ours, of torch, of CUDA or of CUTLASS which is not
    there."""
    roots = {
        "torch": chain.torch_dir and f"{chain.torch_dir}/include",
        "cuda": chain.cuda_home and f"{chain.cuda_home}/include",
    }
    missing: dict[str, Finding] = {}
    for file in sorted(
        p for p in paths.cuda_sources().glob("*/*") if p.suffix in (".cu", ".cuh", ".h", ".cpp")
    ):
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^">]+)[">]', line)
            if not match or match[2] in missing:
                continue
            root = "own" if match[1] == '"' else match[2].split("/")[0]
            base = {
                "own": str(file.parent),
                "torch": roots["torch"],
                "cute": chain.cutlass,
                "cutlass": chain.cutlass,
            }.get(root)
            if match[1] == "<" and re.match(r"(cuda|cublas)\w*\.h$", match[2]):
                root, base = "cuda", roots["cuda"]
            if root not in ("own", "torch", "cute", "cutlass", "cuda") or (
                base and Path(base, match[2]).is_file()
            ):
                continue
            if root in ("torch", "cuda") and base is None:
                continue  # the checks of torch and nvcc say that these are missing as a whole
            found = diagnose(
                f"{'/'.join(file.parts[-3:])}:{number}: fatal error: {match[2]}: No such file or directory"
            )
            missing[match[2]] = found[0]
    if missing:
        return list(missing.values())
    cutlass = (
        f", CUTLASS {chain.cutlass_version}"
        if chain.cutlass
        else f"; CUTLASS is not installed ({CUTLASS}), and no kernel includes it"
    )
    return [Finding("header", "ok", f"every included header is there{cutlass}")]


def _numbers(version: str | None) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(match[1]), int(match[2])) if match else None
