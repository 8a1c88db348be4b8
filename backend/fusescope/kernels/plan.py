"""What a build consists of: one object a source and architecture, its name a hash of all that its content
depends on.

An edited source gets another name whatever its time stamp, a reverted edit finds its old object again, and no
library ever holds an object of another text.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fusescope.core.kept import of_file
from fusescope.core.machine import archs as arch_names
from fusescope.core.machine.toolchain import Toolchain
from fusescope.core.sources import ARCHS, Variant, families, source_closure

FORMAT = "5"  # of objects and of what is stored next to them; a change here rebuilds everything

_GXX = ("-std=c++20", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-Wall")
_BINDING = (*_GXX, "-O2", "-DTORCH_TARGET_VERSION=0x020b000000000000")
# No -ffast-math: NaN and infinities follow IEEE 754. errno and trapping exceptions are what nobody reads
# here.
_CPU = (*_GXX, "-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")
_NVCC = (
    "-std=c++20",
    "-O3",
    "-lineinfo",
    "-Xptxas",
    "-v",
    "-Xcompiler",
    "-fPIC,-fvisibility=hidden,-fno-gnu-unique",
)
_NVCC_EXTRA = (
    "--expt-relaxed-constexpr",
    "-diag-suppress",
    "177",
)  # CuTe needs the first; unused helpers are no news


@dataclass(frozen=True)
class Object:
    """One file to compile. unit: "cpu" or "cuda"; unit and family name the library it goes into; name None =
    the family's binding.

    ``keep`` is the one global symbol of a kernel object; None for bindings, which
    register themselves when loaded.
    """

    unit: str
    family: str
    name: str | None
    arch: str | None
    source: Path
    compiler: str
    flags: tuple[str, ...]
    keep: str | None
    key: str

    @property
    def file(self) -> str:
        """File name of the object in the build folder."""
        words = [
            self.family,
            (self.name or f"binding-{self.unit}").partition(":")[0],
            self.arch or "",
            self.key,
        ]
        return "-".join(w for w in words if w) + ".o"

    @property
    def title(self) -> str:
        return " ".join(
            w for w in (f"{self.family}/{self.name or 'binding.cpp'}", self.arch or self.unit) if w
        )


def claims(variant: Variant, arch: str) -> bool:
    """Whether a kernel is meant for the architecture. One whose source names none is built for any."""
    return variant.archs == ARCHS or arch_names.runs_on(variant.archs, arch)


def entry(variant: Variant, arch: str) -> str:
    """Symbol of a CUDA kernel's entry point for one architecture; the library's dispatcher picks among
    them."""
    return f"{variant.symbol}__{arch}"


def objects(
    chain: Toolchain, units: tuple[str, ...], archs: tuple[str, ...] = (), only: tuple[str, ...] | None = None
) -> list[Object]:
    """The objects of some units ("cpu", "cuda") in a fixed order, of all families or of those named in
    ``only``. "cuda" is for the given architectures, and has none without one. ValueError for a family that
    does not exist."""
    known, read, found = families(only), _Read({}, {}), []
    if unknown := set(only or ()) - set(known):
        there = ", ".join(families())
        raise ValueError(f"there is no kernel family {', '.join(sorted(unknown))}; known: {there}")
    for unit in units if archs else [u for u in units if u != "cuda"]:
        for family in known.values():
            found.append(_binding(chain, unit, family, read))
            for v in (v for v in family.variants if v.device == unit):
                if unit == "cpu":
                    found.append(_cpu(chain, v, read))
                else:
                    found += [_cuda(chain, v, arch, read) for arch in archs if claims(v, arch)]
    return found


def by_library(items: list[Object]) -> dict[tuple[str, str], list[Object]]:
    """The objects of each library: one for each unit and family, so that nobody builds or loads what is not
    called."""
    found: dict[tuple[str, str], list[Object]] = {}
    for item in items:
        found.setdefault((item.unit, item.family), []).append(item)
    return found


def _binding(chain, unit, family, read) -> Object:
    flags = _BINDING + (("-DFUSESCOPE_CUDA", "-DUSE_CUDA") if unit == "cuda" else ())
    key = _key(
        read,
        family.binding,
        (*flags, "private symbols"),
        _version(chain.gxx),
        chain.torch_version,
        chain.torch_cuda,
    )
    include = ("-isystem", f"{chain.torch_dir}/include")
    return Object(unit, family.name, None, None, family.binding, "g++", flags + include, None, key)


def _cpu(chain, v, read) -> Object:
    flags = (*_CPU, f"-DFUSESCOPE_SYMBOL={v.symbol}", *_defines(v))
    key = _key(read, v.path, flags, _version(chain.gxx), chain.cpu)
    return Object("cpu", v.family, v.name, None, v.path, "g++", flags, v.symbol, key)


def _cuda(chain, v, arch, read) -> Object:
    target = f"arch=compute_{arch.removeprefix('sm_')},code={arch}"
    flags = (*_NVCC, *_NVCC_EXTRA, "-gencode", target, f"-DFUSESCOPE_SYMBOL={entry(v, arch)}", *_defines(v))
    key = _key(read, v.path, flags, _version(chain.nvcc), _version(chain.gxx), chain.cutlass_version)
    include = ("-isystem", chain.cutlass) if chain.cutlass else ()
    return Object("cuda", v.family, v.name, arch, v.path, "nvcc", flags + include, entry(v, arch), key)


def _defines(v: Variant) -> tuple[str, ...]:
    return tuple(f"-D{k}={value}" for k, value in v.defines)


def _version(tool) -> str:
    return f"{tool.version}" if tool else "none"


@dataclass(frozen=True)
class _Read:
    """What was read of sources during one call: digests of files and, under "closure", of all that one
    includes; and what each includes."""

    digests: dict[Path, bytes]
    includes: dict[str, tuple[str, ...] | None]


def _key(read: _Read, source: Path, flags: tuple[str, ...], *others: str | None) -> str:
    own = source / "closure"  # no file: the place of a source with all that it includes
    digests = read.digests
    if own not in digests:
        digest = hashlib.sha256()
        for file in source_closure(source, read.includes):
            if file not in digests:
                digests[file] = of_file.kept(str(file), _digest)
            digest.update(f"{file.parent.name}/{file.name}".encode() + b"\0" + digests[file])
        digests[own] = digest.digest()
    return hashlib.sha256(repr((FORMAT, flags, others, digests[own])).encode()).hexdigest()[:20]


def _digest(file: str) -> bytes:
    return hashlib.sha256(Path(file).read_bytes()).digest()
