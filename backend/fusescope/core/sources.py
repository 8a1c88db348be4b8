"""The kernel sources under cuda/: families and their implementations, found by name, without a compiler and
without torch.

A kernel's leading comment carries what the app must know of it: the first line is its idea; these lines are
optional:

    // archs: sm_80 sm_86 sm_89 sm_90a      architectures it is meant for (default: ARCHS, all)
    // expects: HMMA                        SASS mnemonics that prove it uses what it claims, on each of them
    // auto: no, <why>                      "auto" takes it only where no other takes a call
    // emulated: no, <why>                  the tests on the CPU's emulator (tests/emulator) leave it out
    // sweep: TILE=64,128 STAGES=2,3        macros to sweep; every combination is an implementation
                                            "v2_x:TILE=64,STAGES=3"
    // takes:, // plan:, // tiles:          for the choice among kernels (core/directives.py)
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fusescope.core import directives, paths
from fusescope.core.kept import of_file

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a")
"""Architectures a kernel is built for where its source names none."""

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_TAG = re.compile(r"^\s*//\s*(archs|auto|expects|emulated|sweep|takes|plan|tiles|least):\s*(.+?)\s*$")


@dataclass(frozen=True)
class Variant:
    """One implementation: a source file with one choice of its swept macros. device: "cuda" or "cpu"; group:
    the query tiles that a work item is for."""

    family: str
    name: str
    path: Path
    idea: str
    device: str
    archs: tuple[str, ...] = ()
    expects: tuple[str, ...] = ()
    not_auto: str = ""
    not_emulated: str = ""
    takes: directives.Takes = directives.EVERYTHING
    plan: str = "lists"
    group: int = 2
    least_rows: int = 0
    tiles: tuple[directives.Tiles, ...] = directives.ONE_TILE_PER_BLOCK
    defines: tuple[tuple[str, str], ...] = ()

    @property
    def symbol(self) -> str:
        """The C symbol of its entry point (see cuda/common/interface.h). That of a kernel which is given work
        items says so, because it must never be called with a plan, nor another kernel with work items."""
        given = "" if self.plan != "parts" else "__parts"
        return re.sub(r"\W", "_", f"fusescope_{self.family}__{self.name}") + given

    def accepts(self, inputs: directives.Inputs) -> bool:
        """Whether the directives of its source let it take these inputs."""
        return (
            self.plan in inputs.plans
            and self.takes.accepts(inputs)
            and not (self.least_rows and inputs.few_rows)
        )

    @property
    def label(self) -> str:
        """The source as shown and stored: relative to the folder that holds cuda/, never an absolute path."""
        return str(Path(self.path.parent.parent.name, self.path.parent.name, self.path.name))

    @property
    def source_hash(self) -> str:
        """16 hex digits over the file, the project's headers it includes, and its macros: two equal hashes,
        one kernel."""
        digest = hashlib.sha256(repr(self.defines).encode())
        for file in source_closure(self.path):
            digest.update(file.name.encode() + b"\0" + of_file.kept(str(file), _content) + b"\0")
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Family:
    """One folder under cuda/: a shared header, a binding, and the implementations."""

    name: str
    folder: Path
    variants: tuple[Variant, ...] = field(default=())

    @property
    def binding(self) -> Path:
        return self.folder / "binding.cpp"

    def variant(self, name: str) -> Variant:
        for v in self.variants:
            if v.name == name:
                return v
        raise ValueError(
            f"{self.name} has no kernel {name!r}; it has {', '.join(v.name for v in self.variants)}"
        )


def families(only: Iterable[str] | None = None) -> dict[str, Family]:
    """All families, by name, or those of ``only`` that exist, without reading the others. A folder of cuda/
    with a binding.cpp is one."""
    root = paths.cuda_sources()
    folders = sorted(p.parent for p in root.glob("*/binding.cpp"))
    wanted = None if only is None else set(only)
    return {folder.name: _family(folder) for folder in folders if wanted is None or folder.name in wanted}


def family(name: str) -> Family | None:
    """One of them, without reading the others."""
    folder = paths.cuda_sources() / name
    return _family(folder) if (folder / "binding.cpp").is_file() else None


def source_closure(path: Path, looked: dict[str, tuple[str, ...] | None] | None = None) -> list[Path]:
    """The file and every header of ours that it includes, directly or through others; in a fixed order.
    looked: what each file includes (None: it is no file), for several calls at once, which share headers."""
    seen: dict[str, None] = {}
    looked = {} if looked is None else looked
    pending = [os.path.realpath(path)]  # as text: called some 500 times for a build, and Path is slow
    while pending:
        file = pending.pop()
        if file in seen:
            continue
        if file not in looked:
            looked[file] = _included(file)
        if (found := looked[file]) is not None:
            seen[file] = None
            pending += found
    return [Path(file) for file in sorted(seen, key=lambda file: file.split(os.sep))]


def _included(file: str) -> tuple[str, ...] | None:
    """Where the files would be that it includes; None where it is no file."""
    if not os.path.isfile(file):
        return None
    folder = os.path.dirname(file)
    return tuple(os.path.normpath(f"{folder}/{name}") for name in of_file.kept(file, _includes))


def _includes(file: str) -> tuple[str, ...]:
    """The names that it includes, in a fixed order."""
    return tuple(sorted(_INCLUDE.findall(Path(file).read_text(errors="replace"))))


def _content(file: str) -> bytes:
    return Path(file).read_bytes()


def _family(folder: Path) -> Family:
    files = sorted(folder.glob("v[0-9]*.cu"), key=_version) + sorted(folder.glob("cpu*.cpp"))
    return Family(folder.name, folder, tuple(v for file in files for v in of_file.kept(str(file), _variants)))


def _version(file: Path) -> tuple[int, str]:
    return int(re.match(r"v(\d+)", file.name).group(1)), file.name


def _idea(lines: list[str]) -> str:
    """The first sentence of the leading comment, which may be wrapped; "" where the file does not
    begin with one."""
    words = []
    for line in itertools.takewhile(lambda text: text.startswith("//"), lines):
        text = line.strip("/ ").strip()
        if not text or _TAG.match(line):
            break
        words.append(text)
        if text.endswith("."):
            break
    return " ".join(words)


def _variants(path: str) -> tuple[Variant, ...]:
    """The implementations of a file: one, or one for each choice of the macros that it sweeps. A file that is
    incomplete is still listed, with what it lacks in the place of its idea, so that it stops no other."""
    file = Path(path)
    lines = file.read_text(errors="replace").splitlines()
    idea = _idea(lines)
    complaint = (
        None
        if idea
        else "no idea line: the first line of a kernel is a comment that says its idea, "
        "such as // One warp per row."
    )
    tags, chosen_by = {}, {"takes": [], "plan": [], "tiles": [], "least": []}
    for line in itertools.takewhile(lambda text: text.startswith("//"), lines):
        if match := _TAG.match(line):
            if match[1] in chosen_by:
                chosen_by[match[1]].append(match[2])
            else:
                tags[match[1]] = (match[2] if match[1] == "sweep" else match[2].replace(",", " ")).split()
    try:
        directed = directives.read(**chosen_by)
    except ValueError as error:
        complaint, directed = complaint or f"directive not understood, {error}", {}
    device = "cuda" if file.suffix == ".cu" else "cpu"
    axes = []
    for axis in tags.get("sweep", []):
        key, _, values = axis.partition("=")
        if not key.isidentifier() or not values:
            complaint = f"not swept: a sweep is written KEY=value,value, not {axis!r}"
            axes = []
            break
        axes.append([(key, value) for value in values.split(",")])
    common = dict(
        family=file.parent.name,
        path=file,
        idea=complaint or idea,
        device=device,
        archs=tuple(tags.get("archs", ARCHS)) if device == "cuda" else (),
        expects=tuple(tags.get("expects", ())),
        not_auto=" ".join(tags.get("auto", [])).removeprefix("no").strip(),
        not_emulated=" ".join(tags.get("emulated", [])).removeprefix("no").strip(),
        **directed,
    )
    if not axes:
        return (Variant(name=file.stem, **common),)
    return tuple(
        Variant(name=f"{file.stem}:{','.join(f'{k}={v}' for k, v in choice)}", defines=choice, **common)
        for choice in itertools.product(*axes)
    )
