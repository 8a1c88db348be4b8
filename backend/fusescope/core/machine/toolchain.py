"""The compilers and libraries a build uses, found without importing torch and without running a compiler
twice.

CXX names another host compiler, CUDACXX another nvcc, CUDA_HOME (or CUDA_PATH) the CUDA folder, as other
build systems have it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fusescope.core import paths, whole_files


@dataclass(frozen=True)
class Tool:
    """A program on this machine; version as "13.0" or "12.2.0", None where it would not say one."""

    path: str
    version: str | None

    @property
    def major(self) -> int | None:
        return int(self.version.split(".")[0]) if self.version else None


@dataclass(frozen=True)
class Toolchain:
    """Everything a build depends on besides the sources. What is missing is None. ``max_gcc``: newest major
    that nvcc takes."""

    nvcc: Tool | None
    gxx: Tool | None
    gcc: Tool | None
    ninja: str | None
    cuda_home: str | None
    max_gcc: int | None
    torch_dir: str | None
    torch_version: str | None
    torch_cuda: str | None
    torch_has_cuda: bool
    cutlass: str | None
    cutlass_version: str | None
    cpu: str

    @property
    def key(self) -> str:
        """Name of the build folder: objects made for one CPU and one torch are never met by another."""
        text = json.dumps([self.cpu, self.torch_version, self.torch_cuda])
        return f"torch{self.torch_version or 'none'}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def detect() -> Toolchain:
    """What is there now: PATH and the environment variables are read at every call, versions are remembered
    per file."""
    chosen = os.environ.get("CUDACXX")  # one that is named and not there is missing, not replaced by another
    nvcc_path = _which(chosen or "nvcc")
    home = _cuda_home(nvcc_path)
    if nvcc_path is None and home and not chosen:
        nvcc_path = _which(f"{home}/bin/nvcc")
    torch_dir, torch_version, torch_cuda = _torch()
    cutlass, cutlass_version = _cutlass()
    return Toolchain(
        nvcc=_tool(nvcc_path, "--version", r"release (\d+\.\d+)"),
        gxx=_tool(_which(os.environ.get("CXX") or "g++"), "--version", r"\) (\d+[\d.]*)|version (\d+[\d.]*)"),
        gcc=_tool(_which("gcc"), "--version", r"\) (\d+[\d.]*)|version (\d+[\d.]*)"),
        ninja=_ninja(),
        cuda_home=home,
        max_gcc=_max_gcc(home),
        torch_dir=torch_dir,
        torch_version=torch_version,
        torch_cuda=torch_cuda,
        torch_has_cuda=bool(torch_dir) and Path(torch_dir, "lib", "libtorch_cuda.so").is_file(),
        cutlass=cutlass,
        cutlass_version=cutlass_version,
        cpu=cpu_identity(),
    )


def compilers() -> int | None:
    """How many compilers at a time, by FUSESCOPE_JOBS; None where it says nothing. ValueError for what is no
    number from 1."""
    given = os.environ.get("FUSESCOPE_JOBS", "")
    if given and not (given.isascii() and given.isdigit() and int(given)):
        raise ValueError(f"FUSESCOPE_JOBS is a number of compilers from 1, not {given!r}")
    return int(given) if given else None


@lru_cache(maxsize=1)
def cpu_identity() -> str:
    """Model and instruction sets of this CPU: what -march=native depends on."""
    text = Path("/proc/cpuinfo").read_text(errors="replace") if Path("/proc/cpuinfo").is_file() else ""
    first = text.split("\n\n")[0]
    wanted = [
        line for line in first.splitlines() if re.match(r"(model name|flags|CPU part|Features)\s*:", line)
    ]
    return "\n".join(wanted) or os.uname().machine


def known_archs(chain: Toolchain) -> list[str]:
    """Architectures that this nvcc compiles for, as sm_80, with the "a" forms next to those that have one;
    empty without nvcc."""
    if chain.nvcc is None:
        return []
    text = _output(chain.nvcc.path, "--list-gpu-arch")
    numbers = sorted({int(n) for n in re.findall(r"compute_(\d+)", text)})
    return [name for n in numbers for name in ([f"sm_{n}"] + ([f"sm_{n}a"] if n >= 90 else []))]


def find_cuda_tool(chain: Toolchain, name: str) -> str | None:
    """cuobjdump, nvdisasm or another program of the toolkit, from PATH, the CUDA folder, or NVIDIA's PyPI
    packages."""
    found = _which(name) or (chain.cuda_home and _which(f"{chain.cuda_home}/bin/{name}"))
    if found:
        return found
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(root).glob(f"*/bin/{name}")):
            if os.access(path, os.X_OK):
                return str(path)
    return None


def _which(name: str) -> str | None:
    return shutil.which(name)


def _cuda_home(nvcc: str | None) -> str | None:
    candidates = [str(Path(nvcc).resolve().parent.parent)] if nvcc else []
    candidates += [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return next((c for c in candidates if c and Path(c, "include", "cuda_runtime.h").is_file()), None)


def _max_gcc(home: str | None) -> int | None:
    header = Path(home or "", "include", "crt", "host_config.h")
    if not home or not header.is_file():
        return None
    match = re.search(r"gcc versions later than (\d+)", header.read_text(errors="replace"))
    return int(match[1]) if match else None


def _ninja() -> str | None:
    sibling = Path(sys.executable).parent / "ninja"
    return str(sibling) if os.access(sibling, os.X_OK) else _which("ninja")


@lru_cache(maxsize=1)
def _torch() -> tuple[str | None, str | None, str | None]:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None, None, None
    folder = Path(next(iter(spec.submodule_search_locations)))
    text = (folder / "version.py").read_text(errors="replace") if (folder / "version.py").is_file() else ""
    version = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
    cuda = re.search(r"^cuda[^=\n]*= '([^']+)'", text, re.MULTILINE)
    return str(folder), version[1] if version else None, cuda[1] if cuda else None


@lru_cache(maxsize=1)
def _cutlass() -> tuple[str | None, str | None]:
    spec = importlib.util.find_spec("cutlass_library")
    if spec is None or not spec.submodule_search_locations:
        return None, None
    include = Path(next(iter(spec.submodule_search_locations)), "source", "include")
    try:
        version = importlib.metadata.version("nvidia-cutlass")
    except importlib.metadata.PackageNotFoundError:
        version = None
    return (str(include), version) if include.is_dir() else (None, None)


def _tool(path: str | None, argument: str, pattern: str) -> Tool | None:
    if path is None:
        return None
    match = re.search(pattern, _output(path, argument))
    return Tool(path, next((g for g in match.groups() if g), None) if match else None)


def _output(path: str, argument: str) -> str:
    """What the program prints, kept on disk per file identity: asking nvcc and g++ costs tens of milliseconds
    each time."""
    stat = os.stat(path)
    key = f"{os.path.realpath(path)} {stat.st_mtime_ns} {stat.st_size} {stat.st_ino} {argument}"
    memory = _remembered()
    if key not in memory:
        try:
            done = subprocess.run(
                [path, argument], capture_output=True, text=True, timeout=20, env=os.environ | {"LC_ALL": "C"}
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        memory[key] = done.stdout + done.stderr
        _remember(memory)
    return memory[key]


@lru_cache(maxsize=8)
def _memory(file: Path) -> dict[str, str]:
    return whole_files.read_object(file)


def _remembered() -> dict[str, str]:
    return _memory(paths.build_cache() / "toolchain.json")


def _remember(memory: dict[str, str]) -> None:
    with contextlib.suppress(OSError):  # a full or read-only disk costs time here, nothing else
        whole_files.replace(paths.build_cache() / "toolchain.json", json.dumps(memory))
