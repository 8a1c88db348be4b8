"""PTX and SASS of a kernel, made on demand and kept next to its object under the same content hash."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from fusescope.core.doctor.diagnosis import CUDA_TOOLS
from fusescope.core.doctor.findings import pip
from fusescope.core.errors import BuildError
from fusescope.core.machine import archs as arch_names
from fusescope.core.machine import toolchain
from fusescope.core.machine.symbols import demangle_text
from fusescope.core.machine.toolchain import Toolchain, find_cuda_tool
from fusescope.core.sources import families
from fusescope.kernels import figures, plan, report
from fusescope.kernels.build import compile_objects
from fusescope.kernels.plan import Object


def ptx(family: str, impl: str, arch: str) -> str:
    """The PTX of a kernel for an architecture, as nvcc writes it. ValueError for what does not exist,
    BuildError with the compiler's first error where it does not compile or nvcc is missing."""
    chain, item = _find(family, impl, arch)

    def make(target: Path) -> None:
        flags = [
            f
            for f in item.flags
            if f not in ("-Xptxas", "-v", "-gencode") and not f.startswith("arch=compute")
        ]
        virtual = f"--gpu-architecture=compute_{item.arch.removeprefix('sm_')}"
        host = ["-ccbin", chain.gxx.path] if chain.gxx else []
        _run([chain.nvcc.path, *host, *flags, virtual, "--ptx", str(item.source), "-o", str(target)])

    return _cached(chain, item, ".ptx", make)


def sass(family: str, impl: str, arch: str) -> str:
    """The machine code of a kernel, its names demangled, by cuobjdump. Compiles that kernel where it is not
    built yet.

    Needs cuobjdump and nvdisasm (PATH, the CUDA folder or PyPI); BuildError names what to install.
    """
    chain, item = _find(family, impl, arch)
    tools = {name: find_cuda_tool(chain, name) for name in ("cuobjdump", "nvdisasm")}
    missing = [name for name, path in tools.items() if path is None]
    if missing:
        raise BuildError(f"{' and '.join(missing)} missing, so SASS cannot be read; fix: {pip(*CUDA_TOOLS)}")

    def make(target: Path) -> None:
        folder = report.folder_of(chain)
        _ensure_object(item)
        search = os.pathsep.join([str(Path(tools["nvdisasm"]).parent), os.environ.get("PATH", "")])
        text = _run([tools["cuobjdump"], "-sass", str(folder / item.file)], {"PATH": search})
        target.write_text(demangle_text(text))

    return _cached(chain, item, ".sass", make)


def source(family: str, impl: str) -> str:
    """The kernel's source text as it is on disk now."""
    return _family(family).variant(impl).path.read_text()


def _family(name: str):
    known = families()
    if name not in known:
        raise ValueError(f"there is no kernel family {name!r}; known: {', '.join(known)}")
    return known[name]


def _find(family: str, impl: str, arch: str) -> tuple[Toolchain, Object]:
    variant, arch = _family(family).variant(impl), arch_names.normal(arch)
    if variant.device != "cuda":
        raise ValueError(f"{family}/{impl} is a CPU kernel: it has neither PTX nor SASS")
    if not plan.claims(variant, arch):
        raise ValueError(f"{family}/{impl} is for {', '.join(variant.archs)}, not {arch}")
    chain = toolchain.detect()
    if chain.nvcc is None:
        raise BuildError("nvcc, the CUDA compiler, is missing (fusescope doctor says how to get it)")
    if arch not in (known := toolchain.known_archs(chain)):
        raise ValueError(f"nvcc {chain.nvcc.version} does not support {arch}; it supports {', '.join(known)}")
    return chain, next(i for i in plan.objects(chain, ("cuda",), (arch,), (family,)) if i.name == impl)


def _ensure_object(item: Object) -> None:
    error = compile_objects([item])[item.file]
    if error:
        raise BuildError(f"{item.title} does not compile: {error}")


def _cached(chain: Toolchain, item: Object, suffix: str, make: Callable[[Path], None]) -> str:
    file = (report.folder_of(chain) / item.file).with_suffix(suffix)
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}.part")
        try:
            make(part)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    return file.read_text(errors="replace")


def _run(command: list[str], extra: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        env=os.environ | {"LC_ALL": "C"} | (extra or {}),
    )
    if done.returncode != 0:
        output = done.stdout + done.stderr
        raise BuildError(f"{Path(command[0]).name} failed: {figures.first_error(output)}", log=output)
    return done.stdout
