"""CUDA kernels on the CPU, thread by thread: g++ compiles cuda/ against the stand-ins in include/.

``build`` makes a library of a family's binding, as the CPU library has it, and its CUDA kernels, so that
torch.ops.fusescope.<family>(..., "v3_tensor_core") on CPU tensors runs the emulated kernel. The library
defines the operators a second time: load it in a process of its own (run.py does).
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from fusescope.core import paths
from fusescope.core.machine import toolchain
from fusescope.core.sources import Variant, families, source_closure
from fusescope.kernels import plan, report
from fusescope.kernels.build import compile_objects

INCLUDE = Path(__file__).resolve().parent / "include"
"""Stand-ins of CUDA's headers, and of those headers of cuda/common that wrap single GPU instructions or how a
kernel is launched."""

# Kernels are compiled without optimisation, the stand-ins within them with it (#pragma in include/): what is
# saved in compiling is several times what their small cases lose in running. Those of the families with the
# most work, attention before all, run in half the time when optimised.
_OPTIMISED = ("attention", "linear_weight_only", "bias_residual_layernorm")
_KERNEL = ("-std=c++20", "-march=native", "-fPIC", "-w", "-fno-strict-aliasing", f"-I{INCLUDE}")


def _flags(family: str) -> tuple[str, ...]:
    return (*_KERNEL, "-O1" if family.startswith(_OPTIMISED) else "-O0")


def emulated(family: str) -> list[Variant]:
    """The family's CUDA kernels, but for those whose source says why they cannot be emulated."""
    return [v for v in families()[family].variants if v.device == "cuda" and not v.not_emulated]


def build(family: str, kernels: Iterable[Variant | Path]) -> Path:
    """A library of the family's binding and these kernels; a path is a kernel elsewhere, an implementation
    of its file's name. Objects are kept in the build cache by their content."""
    tree, objects = _translated(), [_binding(family)]
    options = _flags(family)
    header = _precompiled("#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n", options)
    for kernel in kernels:
        if isinstance(kernel, Path):
            name, source, defines = f"fusescope_{family}__{kernel.stem}", tree / family / kernel.name, ()
            _write(source, translate(kernel.read_text()))
        else:
            name, source, defines = kernel.symbol, tree / family / kernel.path.name, kernel.defines
        flags = (f"-DFUSESCOPE_SYMBOL={name}", *(f"-D{key}={value}" for key, value in defines))
        objects.append(_object(name, source, (*options, "-include", header, *flags)))
    return _linked(family, objects)


def build_expressed(variant: Variant, header: str, dtype: int, head_dim: int) -> tuple[Path, str]:
    """(library, name of the kernel): the binding of attention and a kernel compiled with a score expression,
    as fusescope.kernels.expressed compiles it; dtype: a FusescopeDtype."""
    tree, options = _translated(), _flags(variant.family)
    text = _cache() / f"score-{_digest([], header)}.h"
    _write(text, header)
    defines = (
        f'-DFUSESCOPE_SCORE="{text}"',
        f"-DFUSESCOPE_SCORE_DTYPE={dtype}",
        f"-DFUSESCOPE_SCORE_HEAD_DIM={head_dim}",
    )
    name = f"{variant.name}__{_digest([], header, dtype, head_dim)}"
    symbol = f"-DFUSESCOPE_SYMBOL=fusescope_{variant.family}__{name}"
    include = _precompiled("#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n", options)
    source = tree / variant.family / variant.path.name
    objects = [
        _binding(variant.family),
        _object(name, source, (*options, "-include", include, *defines, symbol)),
    ]
    return _linked(variant.family, objects), name


def cublaslt() -> Path:
    """The stand-in for cuBLASLt, which FUSESCOPE_CUBLASLT names for cuda/linear."""
    source = Path(__file__).with_name("fake_cublaslt.cpp")
    target = _cache() / f"cublaslt-{_digest([source])}.so"
    return _made(target, ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", source])


def program(source: Path) -> Path:
    """A program that has the headers of cuda/common as they are, besides the stand-ins of CUDA's own."""
    root = paths.cuda_sources()
    headers = sorted(f for folder in (INCLUDE, root / "common") for f in folder.iterdir())
    target = _cache() / f"{source.stem}-{_digest([source, *headers])}"
    return _made(target, ["g++", "-std=c++20", "-w", f"-I{INCLUDE}", f"-I{root}", source])


def translate(text: str) -> str:
    """CUDA C++ as plain C++: launches call emulator::launch, dynamic shared memory is the emulator's."""
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


def _closing(text: str, opening: int) -> int:
    depth = 0
    for i in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise ValueError("unbalanced parentheses in a launch")


def _cache() -> Path:
    folder = paths.build_cache() / "emulated"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _translated() -> Path:
    """cuda/ as plain C++, in a folder named by its content."""
    root = paths.cuda_sources()
    sources = sorted(f for f in root.rglob("*") if f.suffix in (".h", ".cuh", ".cu", ".cpp"))
    tree = _cache() / f"tree-{_digest([*sources, *sorted(INCLUDE.iterdir()), Path(__file__)])}"
    for file in sources if not (tree / "complete").exists() else ():
        stand_in = INCLUDE / file.name
        replaced = file.parent.name == "common" and stand_in.is_file()
        _write(
            tree / file.relative_to(root), stand_in.read_text() if replaced else translate(file.read_text())
        )
    _write(tree / "complete", "")
    return tree


def _binding(family: str) -> Path:
    """The object of the build, which compiles the bindings of all families in one go."""
    chain = toolchain.detect()
    bindings = {i.family: i for i in plan.objects(chain, ("cpu",)) if i.name is None}
    errors = compile_objects(list(bindings.values()))
    if error := errors[bindings[family].file]:
        raise RuntimeError(error)
    return report.folder_of(chain) / bindings[family].file


def _linked(family: str, objects: list[Path]) -> Path:
    library = _cache() / f"{family}-{_digest(objects)}.so"
    torch_named = (_named("libtorch_cpu.so"), _named("libc10.so"))
    return _made(library, ["g++", "-shared", *objects, "-Wl,--no-as-needed", *torch_named, "-ldl"])


def _object(name: str, source: Path, flags: tuple) -> Path:
    """The compiled source; what is not in its text, such as torch, the flags name."""
    key = _digest([*source_closure(source), *sorted(INCLUDE.iterdir())], flags, toolchain.cpu_identity())
    return _made(_cache() / f"{name}-{key}.o", ["g++", *flags, "-x", "c++", "-c", source])


def _precompiled(text: str, options: tuple[str, ...]) -> Path:
    """A header of this text with its precompiled form in the same folder, for kernels to -include."""
    key = _digest(sorted(INCLUDE.iterdir()), options, text, toolchain.cpu_identity())
    header = _cache() / f"header-{key}.h"
    _write(header, text)
    _made(header.with_suffix(".h.gch"), ["g++", *options, "-x", "c++-header", header])
    return header


def _made(target: Path, command: list) -> Path:
    """The file that the command leaves at -o; processes that want the same one wait for the first."""
    with open(target.with_name(f"{target.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_file():
            partial = target.with_name(f"{target.name}.partial")
            done = subprocess.run([*map(str, command), "-o", str(partial)], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr[-4000:]}")
            partial.rename(target)
    return target


def _named(library: str) -> Path:
    """An empty library of that name, to link with instead of the real one, whose symbols take a linker longer
    than our own code; the process that loads what was linked has the real one."""
    return _made(_cache() / library, ["g++", "-shared", f"-Wl,-soname,{library}", "-x", "c++", "/dev/null"])


def _write(file: Path, text: str) -> None:
    if not file.is_file() or file.read_text() != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _digest(files: list[Path], *more) -> str:
    digest = hashlib.sha256(repr(more).encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
