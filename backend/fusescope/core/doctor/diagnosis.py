"""From the output of a failed build, load or launch to its cause and the exact fix."""

from __future__ import annotations

import re
from collections.abc import Callable

from fusescope.core import paths
from fusescope.core.doctor.findings import Finding, install, pip
from fusescope.core.machine.symbols import declaration, demangle

CUTLASS = "nvidia-cutlass==4.2.0.0"
CUDA_TOOLS = ("nvidia-cuda-cuobjdump==13.*", "nvidia-cuda-nvdisasm==13.*")


def diagnose(log: str) -> list[Finding]:
    """Causes found in the output, most likely first, each once; empty when the text names none that is
    known."""
    found: dict[tuple[str, str], Finding] = {}
    for pattern, explain in _RULES:
        for match in re.finditer(pattern, log):
            finding = explain(match)
            found.setdefault((finding.check, finding.says), finding)
    return list(found.values())


def _space(match) -> Finding:
    where = paths.build_cache()
    return Finding(
        "space",
        "fail",
        f"no space left where the build writes ({where})",
        "free some space (fusescope build --clean empties the build cache), "
        f"or FUSESCOPE_BUILD=/a/larger/disk; see: df -h {where}",
    )


def _write(match) -> Finding:
    where = paths.build_cache()
    return Finding(
        "build cache",
        "fail",
        f"the build folder {where} may not be written",
        f"chown -R $USER {where}, or set FUSESCOPE_BUILD",
    )


def _host_too_new(match) -> Finding:
    newest = match[1]
    return Finding(
        "host compiler",
        "fail",
        f"the host compiler is too new: this nvcc takes gcc up to {newest}",
        f"{install(f'g++-{newest}', f'gcc-toolset-{newest}-gcc-c++')} && CXX=g++-{newest} fusescope build",
    )


def _apart(match) -> Finding:
    return Finding(
        "gcc and g++",
        "fail",
        "gcc has no C++ part of its own version (cc1plus is missing): "
        "gcc and g++ come from different versions",
        f"{install('g++', 'gcc-c++')}, or CXX=/path/to/the/g++/that/works fusescope build",
    )


def _header(match) -> Finding:
    name = match[1].strip()
    source = re.search(
        rf"(\S+?):(\d+)(?::\d+)?: fatal error: {re.escape(name)}"
        r"|(\S+?)\((\d+)\): (?:fatal|catastrophic) error",
        match.string,
    )
    where = f" (included at {source[1] or source[3]}:{source[2] or source[4]})" if source else ""
    says = f"the header {name} is missing{where}"
    if name.startswith(("cute/", "cutlass/")):
        return Finding("header", "fail", f"{says}: it belongs to CUTLASS", pip("--no-deps", CUTLASS))
    if name == "Python.h":
        return Finding(
            "header",
            "fail",
            f"{says}: it belongs to the Python headers",
            install("python3-dev", "python3-devel"),
        )
    if name.startswith(("torch/", "ATen/", "c10/")):
        return Finding(
            "header",
            "fail",
            f"{says}: it belongs to torch (>= 2.11)",
            pip("--force-reinstall", "torch==2.13.0"),
        )
    if re.match(
        r"(cuda|cublas|cudnn|nv|crt/|device_|vector_|driver_types|curand|cooperative_groups|mma\.h)", name
    ):
        return Finding("header", "fail", f"{says}: it belongs to the CUDA toolkit", toolkit_fix())
    if re.match(r"(c?std\w+|string|vector|type_traits|atomic|algorithm|omp)(\.h)?$", name):
        return Finding("header", "fail", f"{says}: it belongs to the C++ compiler", install("g++", "gcc-c++"))
    return Finding(
        "header",
        "fail",
        says,
        f"restore it (git -C {paths.ROOT} checkout -- cuda), or correct the #include line",
    )


def _undefined(match) -> Finding:
    name = match[1].strip()
    plain = demangle([name])[0] if name.startswith("_Z") else name
    root = paths.cuda_sources()
    files = [p for suffix in ("*.cuh", "*.h", "*.cpp", "*.cu") for p in sorted(root.glob(f"*/{suffix}"))]
    where = declaration(plain, files)
    declared = f"declared in {where}" if where else "declared in none of the project's sources"
    return Finding(
        "undefined symbol",
        "fail",
        f"undefined symbol {plain}: {declared}, defined in no source",
        f"define {plain} in a source of that family, or remove its declaration and the calls"
        if where
        else "link the library that has it",
    )


def _unknown_arch(match) -> Finding:
    return Finding(
        "architecture",
        "fail",
        f"this nvcc does not support the architecture {match[1]}",
        "fusescope build --arch with one that nvcc --list-gpu-arch names, or install a newer CUDA toolkit",
    )


def _not_covered(match) -> Finding:
    return Finding(
        "architecture",
        "fail",
        "the compute capability of this GPU is not covered by the build",
        "fusescope build (builds for the GPUs that are there; --arch sm_80 … adds others)",
    )


def _instruction(match) -> Finding:
    return Finding(
        "architecture",
        "fail",
        f"a kernel uses what the architecture it is compiled for lacks: {match[0].strip()}",
        "name the architectures that have it in the kernel's leading comment: // archs: sm_90a",
    )


def _mismatch(match) -> Finding:
    return Finding(
        "CUDA versions",
        "fail",
        f"nvcc's CUDA and torch's CUDA differ: {match[0].strip()}",
        "install the toolkit of torch's CUDA version and point CUDACXX at its nvcc, "
        "or a torch of the toolkit's CUDA",
    )


def _driver(match) -> Finding:
    return Finding(
        "driver",
        "fail",
        f"the NVIDIA driver is missing or too old: {match[0].strip()}",
        f"{install('nvidia-driver', 'nvidia-driver')} (or a newer one), then restart; "
        "in a container start it with --gpus all",
    )


def _memory(match) -> Finding:
    return Finding(
        "memory",
        "fail",
        "a compiler was killed, most likely for memory",
        "FUSESCOPE_JOBS=1 fusescope build",
    )


def _tool(check: str, says: str, fix: Callable[[], str]) -> Callable[[re.Match], Finding]:
    return lambda match: Finding(check, "fail", says, fix())


def toolkit_fix() -> str:
    """How to get the CUDA toolkit."""
    packages = install("nvidia-cuda-toolkit", "cuda-toolkit")
    return f"{packages} (12.8 to 13.x; or NVIDIA's own package), or CUDA_HOME=/where/it/is"


_RULES: tuple[tuple[str, Callable[[re.Match], Finding]], ...] = (
    (r"No space left on device|Disk quota exceeded", _space),
    (
        r"Read-only file system|(?:cannot be written|[Cc]annot (?:open|create)[^\n]*): Permission denied",
        _write,
    ),
    (r"gcc versions later than (\d+) are not supported", _host_too_new),
    (r"(?:cannot execute|error trying to exec) '?cc1plus'?", _apart),
    (
        r"undefined symbol:? (\S[^\n]*?)(?: \(_Z\w+\))?(?:: declared in[^\n]*|: defined in no[^\n]*|\n|$)",
        _undefined,
    ),
    (r"Unresolved extern (?:function|variable) '([^']+)'", _undefined),
    (r"undefined reference to [`']([^'\n]+)'", _undefined),
    (r"fatal error: ([^:\n]+): No such file or directory", _header),
    (r"(?:cannot open source file|could not open source file) \"([^\"\n]+)\"", _header),
    (r"Unsupported gpu architecture '(compute_\w+)'|Value '(sm_\w+)' is not defined", _unknown_arch),
    (r"no kernel image is available[^\n]*|unsupported: this GPU's architecture", _not_covered),
    (r"[^\n]*(?:not supported on \.target|requires \.target)[^\n]*", _instruction),
    (
        r"detected CUDA version[^\n]*mismatches[^\n]*|libcudart\.so\.\d+: cannot open shared object file",
        _mismatch,
    ),
    (
        r"CUDA driver version is insufficient[^\n]*|no CUDA-capable device is detected"
        r"|NVML Shared Library Not Found",
        _driver,
    ),
    (r"Driver/library version mismatch", _driver),
    (
        r"ninja(?:: command)? (?:is missing|not found)"
        r"|No such file or directory: '[^']*ninja'|ninja: not found",
        _tool("ninja", "ninja is missing", lambda: pip("ninja")),
    ),
    (
        r"nvcc(?:: command)?:? (?:is missing|not found)",
        _tool("nvcc", "nvcc, the CUDA compiler, is missing", toolkit_fix),
    ),
    (
        r"(?:g\+\+|c\+\+)(?:: command)?:? (?:is missing|not found)",
        _tool("g++", "g++, the C++ compiler, is missing", lambda: install("g++", "gcc-c++")),
    ),
    (
        r"(?:objcopy|ld|nm)(?:: command)?:? not found",
        _tool("binutils", "ld, objcopy or nm is missing", lambda: install("binutils", "binutils")),
    ),
    (
        r"(?:cicc|ptxas|fatbinary|cudafe\+\+)(?:: command)?:? not found",
        _tool("CUDA toolkit", "the CUDA toolkit is incomplete: a part of nvcc is missing", toolkit_fix),
    ),
    (
        r"cannot find -lcudart_static",
        _tool("CUDA toolkit", "the CUDA toolkit lacks libcudart_static.a", toolkit_fix),
    ),
    (r"Killed signal terminated program|(?:^|\n)Killed|cicc[^\n]*[Kk]illed", _memory),
)
