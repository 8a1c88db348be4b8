"""Linking objects into a library under a name made of their names, and naming functions that nobody
defined."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

from fusescope.core.doctor.diagnosis import diagnose
from fusescope.core.errors import BuildError
from fusescope.core.machine.archs import capability
from fusescope.core.machine.symbols import declaration, demangle
from fusescope.core.machine.toolchain import Toolchain
from fusescope.core.sources import source_closure
from fusescope.kernels.plan import Object

LINK = "3"  # of the way libraries are linked; a change here links them again
# No symbol of the CUDA runtime inside leaves the library, and none of ours is taken by another that is
# loaded.
_LINK = (
    "-shared",
    "-Wl,--no-undefined,--allow-shlib-undefined,-Bsymbolic,--exclude-libs,ALL,--no-demangle,--as-needed",
)
_UNDEFINED = re.compile(r"undefined reference to [`']([^']+)'")


def label(chain: Toolchain, unit: str) -> str:
    """What a library of a unit ("cpu", "cuda") is called: without a CUDA torch, that of the GPU is "kernels",
    compiled and linked but not loadable by torch."""
    return unit if unit == "cpu" or chain.torch_has_cuda else "kernels"


def library_name(chain: Toolchain, unit: str, items: list[Object]) -> str:
    """libfusescope_cpu_softmax-<hash>.so: the library of one family's objects."""
    digest = hashlib.sha256(
        "\n".join([*sorted(i.file for i in items), str(chain.torch_has_cuda), LINK, *_LINK]).encode()
    )
    family = items[0].family if items else "nothing"
    return f"libfusescope_{label(chain, unit)}_{family}-{digest.hexdigest()[:20]}.so"


def link(chain: Toolchain, folder: Path, unit: str, items: list[Object]) -> tuple[str, list[Object]]:
    """Link what can be linked of a family's objects; returns the library's name and the objects left out
    because a function is defined nowhere.

    Those lose their object file and get a .failed file with the symbol (demangled) and the file that declares
    it.
    """
    dropped: list[Object] = []
    while True:
        kept = [i for i in items if i not in dropped]
        name = library_name(chain, unit, kept)
        if not kept or (folder / name).is_file():
            return name, dropped
        output = _link_once(chain, folder, unit, kept, name)
        if output is None:
            return name, dropped
        guilty = _blame(folder, kept, set(_UNDEFINED.findall(output)))
        if not guilty:
            raise _failed(f"linking {name} failed", output)
        dropped += guilty


def _link_once(chain: Toolchain, folder: Path, unit: str, items: list[Object], name: str) -> str | None:
    """None when linked, else the linker's output."""
    inputs = [i.file for i in items]
    libraries: list[str] = []
    if unit == "cpu":
        libraries += ["-ltorch", "-ltorch_cpu", "-lc10", *_openmp(chain)]
    else:
        kernels = [i for i in items if i.name]
        inputs = [i.file for i in (items if chain.torch_has_cuda else kernels)]
        inputs.append(_dispatcher(chain, folder, kernels, name))
        if chain.torch_has_cuda:
            libraries += ["-ltorch", "-ltorch_cuda", "-ltorch_cpu", "-lc10_cuda", "-lc10"]
        libraries += [
            *(f"-L{p}" for p in _cuda_folders(chain)),
            "-lcudart_static",
            "-ldl",
            "-lrt",
            "-lpthread",
        ]
    # By name of the shared library, before the driver's own -lstdc++: where only libstdc++.a is installed
    # next to the compiler, a private copy of the C++ runtime would be linked in, and the first exception that
    # meets torch's copy would crash.
    libraries.append("-l:libstdc++.so.6")
    part = f"{name}.{os.getpid()}.part"
    flags = [*_LINK, f"-L{chain.torch_dir}/lib"]
    done = _call([chain.gxx.path, *flags, "-o", part, *inputs, *libraries], folder)
    if done.returncode != 0:
        (folder / part).unlink(missing_ok=True)
        return done.stdout
    (folder / part).rename(folder / name)
    return None


def _openmp(chain: Toolchain) -> list[str]:
    """The OpenMP runtime that torch itself loads: with a second one torch.set_num_threads would not reach our
    loops."""
    found = [
        *Path(chain.torch_dir, "lib").glob("libgomp*.so*"),
        *Path(chain.torch_dir).parent.glob("torch.libs/libgomp*.so*"),
    ]
    return [str(sorted(found)[0])] if found else ["-lgomp"]


def _cuda_folders(chain: Toolchain) -> list[str]:
    home = Path(chain.cuda_home or "")
    found = [home / "lib64", home / "lib", *sorted(home.glob("targets/*/lib"))]
    return [str(p) for p in found if (p / "libcudart_static.a").is_file()]


def _dispatcher(chain: Toolchain, folder: Path, kernels: list[Object], library: str) -> str:
    """Compile the entry points that pick, by the current device's compute capability, among the objects of
    one kernel."""
    by_symbol: dict[str, list[Object]] = {}
    for item in kernels:
        by_symbol.setdefault(item.keep.removesuffix(f"__{item.arch}"), []).append(item)
    text = _DISPATCH_HEAD
    for symbol, items in sorted(by_symbol.items()):
        # Exact targets ("a") first, then the nearest lower minor of the same major.
        items = sorted(items, key=lambda i: (i.arch.endswith("a"), capability(i.arch)), reverse=True)
        tests = []
        for item in items:
            major, minor = capability(item.arch)
            meets = (
                f"cc == {10 * major + minor}"
                if item.arch.endswith("a")
                else f"cc / 10 == {major} && cc % 10 >= {minor}"
            )
            tests.append(f"  if ({meets}) return {item.keep}(args, stream);")
        text += "".join(f"const char* {i.keep}(const void*, void*);\n" for i in items)
        text += '__attribute__((visibility("default")))\n'
        text += f"const char* {symbol}(const void* args, void* stream) {{\n"
        text += "  int cc = 0;\n  if (const char* error = capability(&cc)) return error;\n" + "\n".join(tests)
        built = ", ".join(sorted(i.arch for i in items))
        reason = f"this GPU's architecture (this kernel is built for {built}; fusescope build)"
        text += f'\n  return "unsupported: {reason}";\n}}\n'
    text += '}  // extern "C"\n'
    source = folder / f"{library}.dispatch.cpp"
    source.write_text(text)
    out = f"{library}.dispatch.o"
    command = [
        chain.gxx.path,
        "-std=c++20",
        "-O2",
        "-fPIC",
        "-fvisibility=hidden",
        "-I",
        f"{chain.cuda_home}/include",
    ]
    done = _call([*command, "-c", source.name, "-o", out], folder)
    if done.returncode != 0:
        raise _failed("the dispatcher of the CUDA library does not compile", done.stdout)
    return out


_DISPATCH_HEAD = r"""// Generated: each kernel's entry point picks the object made for the current GPU.
#include <cuda_runtime_api.h>

#include <atomic>

extern "C" {
static const char* capability(int* cc) {
  static std::atomic<int> known[64];
  int device = 0, major = 0, minor = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  if (device < 64 && (*cc = known[device].load(std::memory_order_relaxed)) != 0) return nullptr;
  status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  *cc = 10 * major + minor;
  if (device < 64) known[device].store(*cc, std::memory_order_relaxed);
  return nullptr;
}
"""


def _blame(folder: Path, items: list[Object], symbols: set[str]) -> list[Object]:
    """The objects that refer to an undefined symbol; each gets its .failed file."""
    guilty = []
    for item in items if symbols else ():
        listing = _call(["nm", "-u", "--format=posix", item.file], folder).stdout
        mine = sorted(symbols & {line.split()[0] for line in listing.splitlines() if line.split()})
        if not mine:
            continue
        text = [_explain(item, mangled, plain) for mangled, plain in zip(mine, demangle(mine))]
        failed = (folder / item.file).with_suffix(".failed")
        failed.write_text("\n".join(text) + "\n")
        (folder / item.file).unlink()
        guilty.append(item)
    return guilty


def _explain(item: Object, mangled: str, plain: str) -> str:
    where = declaration(plain, source_closure(item.source))
    declared = f"declared in {where}, " if where else ""
    return (
        f"error: undefined symbol {plain} ({mangled}): {declared}defined in no source; used by {item.title}"
    )


def _call(command: list[str], folder: Path) -> subprocess.CompletedProcess:
    environment = os.environ | {"LC_ALL": "C"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def _failed(what: str, output: str) -> BuildError:
    causes = tuple(diagnose(output))
    return BuildError(f"{what}: {causes[0].says if causes else _first_line(output)}", causes, output)


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return next(
        (line for line in lines if "error" in line or "cannot" in line), lines[0] if lines else "no output"
    )
