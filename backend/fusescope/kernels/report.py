"""What a build made, read from the build folder without torch: per kernel and architecture its state and the
compiler's figures."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path

from fusescope.core import paths, whole_files
from fusescope.core.machine import toolchain
from fusescope.core.machine.archs import normal
from fusescope.core.machine.toolchain import Toolchain
from fusescope.core.sources import families
from fusescope.kernels import figures, plan
from fusescope.kernels.figures import KernelResources
from fusescope.kernels.link import label, library_name
from fusescope.kernels.plan import Object, by_library


@dataclass(frozen=True)
class VariantBuild:
    """One object: status "built" or "failed" (then with its first error and full output). variant
    "binding.cpp": the binding."""

    family: str
    variant: str
    device: str
    arch: str | None
    status: str
    seconds: float | None
    error: str | None
    output: str
    key: str
    resources: tuple[KernelResources, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuildReport:
    """One build. ok: everything was built and linked; reused: nothing had to be; libraries by unit and family
    ("cpu/softmax"; the unit is "kernels" where this torch has no CUDA: compiled and linked, not loadable by
    torch). causes: the doctor's findings as dicts."""

    ok: bool
    seconds: float
    reused: bool
    libraries: dict[str, str]
    archs: tuple[str, ...]
    variants: tuple[VariantBuild, ...]
    compiled: int = 0
    toolchain: dict[str, str | None] = dataclasses.field(default_factory=dict)
    causes: tuple[dict, ...] = ()

    @property
    def failed(self) -> tuple[VariantBuild, ...]:
        return tuple(v for v in self.variants if v.status == "failed")

    def to_json(self) -> dict:
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_json(cls, data: dict) -> BuildReport:
        values = {f.name: data[f.name] for f in dataclasses.fields(cls) if f.name in data}
        values["variants"] = tuple(_variant(v) for v in values["variants"])
        return cls(**values | {k: tuple(values[k]) for k in ("archs", "causes") if k in values})


def latest() -> BuildReport | None:
    """The report of the current sources and toolchain if all of it was built (or failed); seconds are then
    the objects' own."""
    chain = toolchain.detect()
    archs = last_archs(chain)
    found = assemble(chain, archs)
    if not found or any(v.status == "not built" for v in found.variants):
        return None
    return found


def resources(family: str, impl: str, arch: str) -> list[KernelResources]:
    """The compiler's figures of a kernel's current source for one architecture; empty where it is not built
    for that."""
    chain = toolchain.detect()
    folder = folder_of(chain)
    for item in plan.objects(chain, ("cuda",), (normal(arch),)):
        if (item.family, item.name) == (family, impl):
            return list(_describe(folder, item).resources)
    return []


def state(
    archs: tuple[str, ...] | None = None, only: tuple[str, ...] | None = None
) -> dict[str, dict[str, dict]]:
    """{family: {variant: {"status": "built" | "stale" | "failed" | "not built", "error": first error or None,
    "archs": {arch: status}}}}.

    The binding stands under "binding.cpp". Stale = an earlier text of it was built, the current one was not.
    A CUDA kernel counts for ``archs``, and has none with (); left out, for the architectures of the last
    build, or where that was for the CPU alone, for the one it fares best on. By content, so a changed time
    stamp alone changes nothing. only: these families alone; nothing of the others is read then.
    """
    chain = toolchain.detect()
    folder, last = folder_of(chain), last_archs(chain) if archs is None else archs
    names = {p.name for p in folder.glob("*.o")} | {p.name for p in folder.glob("*.failed")}
    before = {name.rpartition("-")[0] for name in names if name.endswith(".o")}
    if archs is None:
        archs = last or tuple(sorted({m[1] for name in names if (m := _ARCH_IN_NAME.search(name))}))
    known = families(only)
    answer: dict[str, dict[str, dict]] = {name: {} for name in known}
    for name, family in known.items():
        answer[name] = {v.name: {"status": "not built", "error": None, "archs": {}} for v in family.variants}
    for item in plan.objects(chain, ("cpu", "cuda"), archs, only):
        status, error = status_of(folder, item)
        if status == "not built" and item.file.rpartition("-")[0] in before:
            status = "stale"
        slot = answer[item.family].setdefault(
            item.name or "binding.cpp", {"status": status, "error": error, "archs": {}}
        )
        first, order = (
            not slot["archs"],
            _BEST_FIRST if item.unit == "cuda" and not last and item.name else _WORST_FIRST,
        )
        slot["archs"][item.arch or item.unit] = status
        if first or order.index(status) < order.index(slot["status"]):
            slot.update(status=status, error=error)
    return answer


_WORST_FIRST = ("failed", "stale", "not built", "built")
_BEST_FIRST = ("built", "failed", "stale", "not built")
_ARCH_IN_NAME = re.compile(r"-(sm_\w+)-[0-9a-f]+\.(?:o|failed)$")


def assemble(
    chain: Toolchain, archs: tuple[str, ...], units=("cpu", "cuda"), items: list[Object] | None = None
) -> BuildReport | None:
    """A report out of what is in the build folder for these objects (default: those of the current
    sources); status "not built" where there are none. None without any of them there."""
    if items is None:
        items = plan.objects(chain, units, archs)
    folder, libraries = folder_of(chain), {}
    variants = [_describe(folder, i) for i in items]
    made = [i for i, v in zip(items, variants) if v.status == "built"]
    for (unit, family), mine in by_library(made).items():
        name = library_name(chain, unit, mine)
        if (folder / name).is_file():
            libraries[f"{label(chain, unit)}/{family}"] = str(folder / name)
    if not any(v.status != "not built" for v in variants):
        return None
    ok = len(libraries) == len(by_library(items)) and all(v.status == "built" for v in variants)
    return BuildReport(
        ok,
        sum(v.seconds or 0 for v in variants),
        True,
        libraries,
        tuple(archs),
        tuple(variants),
        0,
        facts(chain),
    )


def facts(chain: Toolchain) -> dict[str, str | None]:
    """The versions a build depends on."""
    return {
        "nvcc": chain.nvcc and chain.nvcc.version,
        "gxx": chain.gxx and chain.gxx.version,
        "torch": chain.torch_version,
        "torch_cuda": chain.torch_cuda,
        "cutlass": chain.cutlass_version,
    }


def folder_of(chain: Toolchain) -> Path:
    return paths.build_cache() / chain.key


def last_archs(chain: Toolchain) -> tuple[str, ...]:
    """Architectures of the last build in this folder; none before the first."""
    last = saved(chain)
    return last.archs if last else ()


def saved(chain: Toolchain) -> BuildReport | None:
    """The report of the last build in this folder, whatever the sources are now; None before the first, or if
    it is torn."""
    try:
        return BuildReport.from_json(json.loads((folder_of(chain) / "report.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(chain: Toolchain, report: BuildReport) -> Path:
    """Write report.json into the build folder (by rename)."""
    file = folder_of(chain) / "report.json"
    whole_files.replace(file, json.dumps(report.to_json(), indent=1))
    return file


def status_of(folder: Path, item: Object) -> tuple[str, str | None]:
    """("built" | "failed" | "not built", first error) of one object."""
    file = folder / item.file
    if file.is_file():
        return "built", None
    failed = file.with_suffix(".failed")
    return (
        ("failed", figures.first_error(figures.text_of(failed))) if failed.is_file() else ("not built", None)
    )


def _describe(folder: Path, item: Object) -> VariantBuild:
    status, error = status_of(folder, item)
    output = figures.text_of((folder / item.file).with_suffix(".failed")) if status == "failed" else ""
    compiled = figures.read(folder, item) if status == "built" else {}
    made = tuple(KernelResources(**r) for r in compiled.get("resources", ()))
    warnings = tuple(compiled.get("warnings", ()))
    label = item.name or "binding.cpp"
    return VariantBuild(
        item.family,
        label,
        item.unit,
        item.arch,
        status,
        compiled.get("seconds"),
        error,
        output,
        item.key,
        made,
        warnings,
    )


def _variant(data: dict) -> VariantBuild:
    made = tuple(KernelResources(**r) for r in data["resources"])
    return VariantBuild(**data | {"resources": made, "warnings": tuple(data["warnings"])})
