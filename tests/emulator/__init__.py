"""CUDA kernels on the CPU, thread for thread: the sources of cuda/ are compiled by g++ against stand-ins of CUDA's headers.

``build`` makes a library that holds the real binding of a family and its CUDA kernels as CPU implementations, so that
torch.ops.fusescope.<family>(..., "v3_tensor_core") on CPU tensors runs the emulated kernel. It defines the operators a second
time: load it in a process of its own.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fusescope.core import paths
from fusescope.core.sources import families

HERE = Path(__file__).resolve().parent
STAND_INS = ("mma.cuh", "async_copy.cuh", "hopper.cuh", "warpgroup.cuh", "roles.cuh", "dependent.cuh")
"""Headers of cuda/common that are wrappers of single GPU instructions or of how a kernel is launched, and are replaced."""


def build(names: dict[str, tuple[str, ...]], extra: dict[str, tuple[Path, ...]] | None = None) -> Path:
    """A library with the given CUDA kernels ({family: names of implementations}) and further files ({family: paths}, each an
    implementation of that file's name); rebuilt when any source has changed."""
    import torch

    extra = extra or {}

    sources = sorted(
        f
        for f in [*paths.cuda_sources().rglob("*"), *HERE.iterdir()]
        if f.suffix in (".h", ".cuh", ".cu", ".cpp", ".py")
    )
    digest = hashlib.sha256(repr((names, extra, torch.__version__)).encode())
    for file in (f for files in extra.values() for f in files):
        digest.update(file.read_bytes())
    for file in sources:
        if file.parent.name in ("common", HERE.name, "gemm", *names):
            digest.update(file.read_bytes())
    folder = paths.build_cache() / "emulated" / digest.hexdigest()[:16]
    library = folder / "emulated.so"
    if library.is_file():
        return library
    shutil.rmtree(folder, ignore_errors=True)
    _translated_tree(folder / "cuda")
    torch_dir = Path(torch.__file__).parent
    flags = [
        "-std=c++20",
        "-O1",
        "-fPIC",
        "-w",
        "-fno-strict-aliasing",
        f"-I{HERE}",
        f"-I{torch_dir}/include",
    ]
    flags += ["-DTORCH_TARGET_VERSION=0x020b000000000000"]
    known, jobs = families(), []
    for family, impls in names.items():
        jobs.append(([], folder / "cuda" / family / "binding.cpp"))
        for impl in impls:
            jobs.append(
                (_as_kernel(family, impl), folder / "cuda" / family / known[family].variant(impl).path.name)
            )
        for file in extra.get(family, ()):
            copy = folder / "cuda" / family / file.name
            copy.write_text(translate(file.read_text()))
            jobs.append((_as_kernel(family, file.stem), copy))
    objects = [folder / f"{i}.o" for i in range(len(jobs))]
    commands = [
        ["g++", *flags, *extra, "-c", str(source), "-o", str(o)] for (extra, source), o in zip(jobs, objects)
    ]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_run, commands))
    partial = folder / "partial.so"
    _run(
        [
            "g++",
            "-shared",
            "-o",
            str(partial),
            *map(str, objects),
            f"-L{torch_dir}/lib",
            "-ltorch_cpu",
            "-lc10",
            "-ldl",
        ]
    )
    partial.rename(library)
    return library


def translate(text: str) -> str:
    """CUDA C++ as plain C++: launches become calls of emulator::launch, dynamic shared memory the emulator's."""
    text = re.sub(
        r"extern __shared__\s+(?:__align__\(\d+\)\s+)?([\w ]+?)\s+(\w+)\[\];",
        r"\1* const \2 = reinterpret_cast<\1*>(emulator::dynamic_memory);",
        text,
    )
    while (at := text.find("<<<")) >= 0:
        begin = max(text.rfind(c, 0, at) for c in ";{}") + 1
        close = text.index(">>>", at)
        end = _closing(text, text.index("(", close))
        config, kernel, arguments = text[at + 3 : close], text[begin:at].strip(), text[close + 3 : end + 1]
        text = f"{text[:begin]} emulator::launch({config}, [&] {{ {kernel}{arguments}; }}){text[end + 1 :]}"
    return text


def _translated_tree(target: Path) -> None:
    for file in paths.cuda_sources().rglob("*"):
        if file.suffix in (".h", ".cuh", ".cu", ".cpp"):
            copy = target / file.relative_to(paths.cuda_sources())
            copy.parent.mkdir(parents=True, exist_ok=True)
            stand_in = file.parent.name == "common" and file.name in STAND_INS
            copy.write_text((HERE / file.name).read_text() if stand_in else translate(file.read_text()))


def _as_kernel(family: str, impl: str) -> list[str]:
    return [f"-DFUSESCOPE_SYMBOL=fusescope_{family}__{re.sub(r'[^0-9A-Za-z]', '_', impl)}", "-x", "c++"]


def _closing(text: str, opening: int) -> int:
    depth = 0
    for i in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise ValueError("unbalanced parentheses in a launch")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
