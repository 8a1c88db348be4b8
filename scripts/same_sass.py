"""Whether the kernels of two source trees compile to the same machine code.

    python scripts/same_sass.py HEAD .                                  every kernel, for sm_90a
    python scripts/same_sass.py OLD NEW --family attention --impl v3_hopper --arch sm_80 --arch sm_90a
    python scripts/same_sass.py HEAD~3 . --record                       and keep what was proven

OLD and NEW are a checkout, a folder of families (cuda/) or a git revision. Each kernel is compiled with the
flags of the build and disassembled; only the names of anonymous namespaces, which hash the file's path, are
ignored. CPU kernels are compared as the assembly that g++ writes, but for the numbers of functions in its
labels. Kernels whose sources differ only in comments and layout are the same program and are not compiled.
Exit status 1 where a kernel differs, is missing or does not compile.

--record adds the pairs of source hashes that were proven equal to NEW's same_code.json (core/same_code.py).
Machine code is kept in the build cache by the content of its sources, so a second run compiles what changed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "backend")]

from fusescope.core import same_code, sources  # noqa: E402
from fusescope.core.machine import toolchain  # noqa: E402
from fusescope.core.machine.symbols import demangle  # noqa: E402
from fusescope.kernels import plan, report  # noqa: E402

_ANONYMOUS = re.compile(r"\d*_GLOBAL__N__[0-9a-f]{8}_\d+_\w+?_(?:cu|cpp)_[0-9a-f]{8}(?:_\d+)?")
_LITERAL = r'"(?:\\.|[^"\\\n])*"' + r"|'(?:\\.|[^'\\\n])+'"
_COMMENT = re.compile(rf"({_LITERAL})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(rf"{_LITERAL}|[\w.']+|[^\w\s]")
_INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
_DATA = re.compile(
    r"Contents of section (\.nv\.(?:constant[1-9]|global\.init)\S*):\n(.*?)(?=Contents of|\Z)", re.DOTALL
)
# Labels with the number of a function among all that are declared, which is no machine code.
_NUMBERED = re.compile(r"(\.L(?:FS?[BE]|LSDA[A-Z]*))\d+")
_CONTEXT = 2  # lines shown before a difference


@dataclass(frozen=True)
class Tree:
    """The kernels of one folder of families: objects to compile by title, source hashes by (family, impl)."""

    objects: dict[str, plan.Object]
    hashes: dict[tuple[str, str], str]


def tree(folder: Path, chain: toolchain.Toolchain, archs: tuple[str, ...]) -> Tree:
    """What the build would compile of ``folder`` for these architectures and for the CPU, bindings aside."""
    before = os.environ.get("FUSESCOPE_CUDA")
    os.environ["FUSESCOPE_CUDA"] = str(folder)
    try:
        objects = plan.objects(chain, ("cuda", "cpu"), archs)
        variants = [v for family in sources.families().values() for v in family.variants]
    finally:
        os.environ.pop("FUSESCOPE_CUDA")
        if before is not None:
            os.environ["FUSESCOPE_CUDA"] = before
    return Tree(
        {o.title: o for o in objects if o.name}, {(v.family, v.name): v.source_hash for v in variants}
    )


def kernels_of(where: str, scratch: Path) -> Path:
    """The folder of families that the word names; that of a git revision is put into scratch."""
    for folder in (Path(where) / "cuda", Path(where)):
        if any(folder.glob("*/binding.cpp")):
            return folder.resolve()
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", where, "cuda"], capture_output=True)
    if archive.returncode:
        raise ValueError(
            f"{where!r} is neither a folder of kernels nor a git revision: {archive.stderr.decode().strip()}"
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(scratch, filter="data")
    return scratch / "cuda"


def program(file: Path, seen: set[Path] | None = None) -> list[str]:
    """The tokens of a source with our headers in place, each once; comments and layout leave no trace."""
    seen = set() if seen is None else seen
    if file in seen:
        return []
    seen.add(file)
    text = _COMMENT.sub(lambda match: match[1] or " ", file.read_text(errors="replace").replace("\\\n", " "))
    tokens = []
    for line in text.splitlines():
        include = _INCLUDE.match(line)
        if include and (header := Path(os.path.normpath(file.parent / include[1]))).is_file():
            tokens += program(header, seen)
        elif found := _TOKEN.findall(line):
            directive = found[0] == "#"
            if not directive or found[1:] != ["pragma", "once"]:
                tokens += [*found, "\n"] if directive else found
    return tokens


def machine_code(chain: toolchain.Toolchain, item: plan.Object) -> dict[str, list[str]]:
    """{function: its instructions and resources} of a CUDA kernel; {"assembly": lines} of a CPU kernel.

    RuntimeError with the compiler's output where it does not compile.
    """
    key = hashlib.sha256(repr([program(item.source), item.flags, chain.nvcc, chain.gxx, chain.cpu]).encode())
    file = report.folder_of(chain) / "same_sass" / f"{key.hexdigest()[:24]}.txt"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        text = _sass(chain, item) if item.compiler == "nvcc" else _assembly(chain, item)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(text)
        part.replace(file)
    return _functions(_NUMBERED.sub(r"\1", file.read_text()))


def _sass(chain, item) -> str:
    host = ["-ccbin", chain.gxx.path] if chain.gxx else []
    cuobjdump, nvdisasm = (toolchain.find_cuda_tool(chain, name) for name in ("cuobjdump", "nvdisasm"))
    if not (cuobjdump and nvdisasm):
        raise RuntimeError(
            "cuobjdump or nvdisasm is missing: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
        )
    with tempfile.TemporaryDirectory() as scratch:
        cubin = f"{scratch}/kernel.cubin"
        flags = [f for f in item.flags if f not in ("-Xptxas", "-v")]
        _output([chain.nvcc.path, *host, *flags, "-cubin", str(item.source), "-o", cubin])
        search = f"{Path(nvdisasm).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        sass = _output([cuobjdump, "-sass", "-res-usage", cubin], PATH=search)
        data = _DATA.findall(_output(["objdump", "-s", cubin]))
    return sass + "".join(f"\nFunction : data {name}\n{words}" for name, words in data)


def _assembly(chain, item) -> str:
    text = _output([chain.gxx.path, *item.flags, "-S", str(item.source), "-o", "-"])
    return "Function : assembly\n" + re.sub(r"^\s*\.(file|ident)\b.*\n", "", text, flags=re.MULTILINE)


def _output(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"} | environment
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"{command[0]} failed")
    return done.stdout


def _functions(text: str) -> dict[str, list[str]]:
    """The lines of each function, without runs of blanks and hashes of paths."""
    found: dict[str, list[str]] = {}
    name = None
    for line in text.splitlines():
        if begins := re.match(r"\s*Function (?:: )?(.+?):?$", line):
            name = _ANONYMOUS.sub("_anonymous_", begins[1])
            found.setdefault(name, [])
        elif name and (words := line.split()) and words[0] not in ("code", ".target"):
            found[name].append(_ANONYMOUS.sub("_anonymous_", " ".join(words)))
    return found


def difference(old: dict[str, list[str]], new: dict[str, list[str]]) -> str | None:
    """The first difference in words; None where ``new`` holds the functions of ``old``, whatever their names.
    Functions more change none of those."""
    bodies = list(new.values())
    for name, body in old.items():
        if body in bodies:
            bodies.remove(body)  # perhaps under another name
        elif name in new:
            return _first_line(demangle([name])[0], body, new[name])
    gone = {name: body for name, body in old.items() if body not in new.values()}
    renamed = sorted(name for name in new if name not in old and new[name] in bodies)
    for name, other in zip(sorted(gone), renamed):
        return _first_line(" → ".join(demangle([name, other])), gone[name], new[other])
    return f"{len(old)} functions, now {len(new)}" if gone else None


def _first_line(name: str, old: list[str], new: list[str]) -> str:
    """Where two bodies part, with the lines before it."""
    at = next(i for i, pair in enumerate(zip([*old, "(end)"], [*new, "(end)"])) if pair[0] != pair[1])
    before = "".join(f"\n      {line}" for line in old[max(0, at - _CONTEXT) : at])
    was, now = ([*lines, "(end)"][at] for lines in (old, new))
    return f"{name}, line {at + 1} of {len(old)} (now {len(new)}):{before}\n    - {was}\n    + {now}"


def verdict(chain: toolchain.Toolchain, old: plan.Object, new: plan.Object) -> tuple[bool, str]:
    """Whether two objects hold the same machine code, and the words for it."""
    if program(old.source) == program(new.source) and old.flags == new.flags:
        return True, "identical (same source but for comments and layout)"
    try:
        before, after = machine_code(chain, old), machine_code(chain, new)
    except RuntimeError as error:
        return False, f"does not compile: {error}"
    if what := difference(before, after):
        return False, f"differs: {what}"
    lines, more = sum(map(len, before.values())), len(after) - len(before)
    added = f", {more} more" if more else ""
    return True, f"identical ({lines:,} lines, {len(before)} function{'s' * (len(before) != 1)}{added})"


def compare(
    old: Tree, new: Tree, chain: toolchain.Toolchain, wanted, jobs: int
) -> dict[tuple[str, str], bool]:
    """Print a line per object; (family, impl) → whether all of its objects are in both trees and equal."""
    titles = [t for t, o in (old.objects | new.objects).items() if wanted(o)]

    def compared(title: str) -> tuple[bool, str]:
        if title not in old.objects or title not in new.objects:
            return False, "only in " + ("OLD" if title in old.objects else "NEW")
        return verdict(chain, old.objects[title], new.objects[title])

    same: dict[tuple[str, str], bool] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for title, (equal, says) in zip(titles, pool.map(compared, titles)):
            print(f"{title}: {says}", flush=True)
            item = new.objects.get(title) or old.objects[title]
            same[item.family, item.name] = same.get((item.family, item.name), True) and equal
    return same


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", help="checkout, folder of families or git revision")
    parser.add_argument("new", help="likewise")
    parser.add_argument("--family", action="append", help="only this family (repeatable)")
    parser.add_argument(
        "--impl", action="append", help="only this implementation, swept macros aside (repeatable)"
    )
    parser.add_argument(
        "--arch", action="append", help="architecture of CUDA kernels (repeatable; default sm_90a)"
    )
    parser.add_argument(
        "--jobs", type=int, default=toolchain.compilers() or os.cpu_count(), help="compilers at a time"
    )
    parser.add_argument("--record", action="store_true", help="add proven pairs to NEW's same_code.json")
    options = parser.parse_args(words)
    chain = toolchain.detect()

    def wanted(item: plan.Object) -> bool:
        named = not options.impl or item.name.partition(":")[0] in options.impl or item.name in options.impl
        return named and (not options.family or item.family in options.family)

    with tempfile.TemporaryDirectory() as scratch:
        folders = [
            kernels_of(where, Path(scratch, str(i))) for i, where in enumerate((options.old, options.new))
        ]
        old, new = (tree(folder, chain, tuple(options.arch or ("sm_90a",))) for folder in folders)
        same = compare(old, new, chain, wanted, options.jobs)
        if options.record:
            now = tree(folders[1], chain, ()).hashes  # one that was edited meanwhile is not recorded
            proven = {
                name: (old.hashes[name], now[name])
                for name, equal in same.items()
                if equal and now.get(name) == new.hashes[name]
            }
            print(f"{same_code.add(folders[1], proven)} pairs added to {folders[1] / same_code.FILE}")
    if not same:
        print("no kernel of that name")
    print(f"{sum(same.values())} of {len(same)} kernels identical")
    return 0 if same and all(same.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
