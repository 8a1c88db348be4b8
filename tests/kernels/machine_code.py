"""What is asked of a kernel's machine code, and the cheapest way to have some: ``sample``, some of a kernel's
instantiations and no host code."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from fusescope.core import paths
from fusescope.core.machine import toolchain
from fusescope.core.machine.symbols import demangle_text
from fusescope.core.sources import Variant, families, source_closure
from fusescope.kernels import figures, plan

CHAIN = toolchain.detect()
KERNELS = [v for f in families().values() for v in f.variants if v.device == "cuda"]
_FIRST = "sm_90a"
_STORES = re.compile(r"\b(ST|STG|STL|STS|RED|ATOM|ATOMG|REDG|UTMASTG|UTMAREDG|UBLKCP)\b")
_FLOAT16 = (
    (r"case FS_FLOAT16:\s*return[^;]*;", ""),
    (r"if \((?:\w+(?:\.|->))?dtype == FS_FLOAT16\) return[^;]*;", ""),
    (r"(?:\w+(?:\.|->))?dtype == FS_FLOAT16\s*\? [^:;]+ : ", ""),
)
"""Of the two 16-bit dtypes bfloat16 stays."""
_BY_DTYPE = (
    r"\? (\w+)<T, ((?:true, |false, )*)true>(\([^;]*\))\s*: \1<T, \2false>\3;",
    r"? \1<T, \2sizeof(T) == 2>\3 : \1<T, \2sizeof(T) == 2>\3;",
)
"""Of a choice that is made for each dtype (accesses of 16 bytes): one side for 16-bit types, the other for
float32."""
_PAIRS = (
    # Along which side each operand of a product lies: both along one.
    (r"\? (\w+)<T, (true|false), true>(\([^;]*\))\s*: \1<T, \2, false>\3;", r"? \1<T, \2, \2>\3 : nullptr;"),
    # A residual with one of the activations.
    (
        r"\? (\w+)<T, (\w+\.value), true>(\([^;]*\))\s*: \1<T, \2, false>\3;",
        r"? \1<T, \2, \2 == 1>\3 : \1<T, \2, \2 == 1>\3;",
    ),
    # Head sizes 64 and 128, and smaller ones.
    *((rf"(with_width<[^>]*?), {size}(?=[,>])", r"\1") for size in (96, 160, 192, 256)),
    *((rf"case {panels}:\s*return with_warpgroups<T, {panels}>[^;]*;", "") for panels in (3, 4)),
    # Rows of four lengths out of eight: 8, 16 and 32 elements a thread, of 32, 256 and 1024 threads.
    *((rf"if \(cols <= {most}\) return body\([^;]*;", "") for most in (512, 2048, 8192, 16384)),
)
"""Each value of two template parameters, not their product; of sizes, some."""
_OTHERS = {
    "bias_residual_layernorm/v3_few_rows": (
        ("  return row::by_length(cols, body);", '  return "v2_registers";'),
        ("few ? by_length_of_few(cols, body) : row::by_length(cols, body)", "by_length_of_few(cols, body)"),
    ),
}
"""Instantiations that a kernel shares with another: (text, replacement)."""


def name(variant: Variant) -> str:
    return f"{variant.family}/{variant.name}"


def usual_arch(variant: Variant) -> str:
    """The one architecture of ``make test``: sm_90a, or the newest that the kernel claims."""
    return _FIRST if plan.claims(variant, _FIRST) else variant.archs[-1]


def check_stores_and_claims(variant: Variant, arch: str, sass: str) -> None:
    """Each function stores something (what an architecture lacks may compile into a trap), waits for the
    kernel before it if it lets the next one start, and reads nothing before that wait which comes behind it
    in the source; together they use the instructions that are claimed."""
    functions = re.split(r"^\s*Function : ", sass, flags=re.MULTILINE)[1:]
    assert functions, f"{name(variant)} has no code for {arch}"
    for body in functions:
        assert _STORES.search(body), (
            f"{name(variant)} for {arch} stores nothing, so it is a trap or empty: {body.splitlines()[0]}"
        )
        # What starts behind it relies on this one's having waited for all before it (common/dependent.cuh).
        assert "PREEXIT" not in body or "ACQBULK" in body, (
            f"{name(variant)} for {arch} lets the next kernel start and waits for none before it: "
            + body.splitlines()[0]
        )
        # The assembler moves loads of what is said to be constant (ld.global.nc, __ldg) before the wait.
        assert "ACQBULK" not in body or not re.search(r"\bLDG\S*\.CONSTANT", body), (
            f"{name(variant)} for {arch} may read before its wait what the kernel before it writes: "
            + body.splitlines()[0]
        )
    for mnemonic in variant.expects:
        used = any(re.search(rf"\b{re.escape(mnemonic)}\b", body) for body in functions)
        assert used, f"{name(variant)} claims {mnemonic} on {arch}; its machine code has none"


def check_registers(variant: Variant, arch: str, resources: list[figures.KernelResources]) -> None:
    """No function spills, unless the family's README has a line "- spills of `kernel`: why"."""
    assert resources and all(r.registers > 0 for r in resources)
    spilled = {r.name: r.spills for r in resources if r.spills}
    readme = variant.path.with_name("README.md")
    documented = rf"^- spills of `{variant.path.stem}`: \S"
    known = readme.is_file() and re.search(documented, readme.read_text(), re.MULTILINE)
    assert not spilled or known, (
        f"{name(variant)} spills on {arch}, and its family's README has no line "
        f"'- spills of `{variant.path.stem}`: why': {spilled}"
    )


def sample(variant: Variant, arch: str) -> tuple[str, list[figures.KernelResources]]:
    """SASS and the compiler's figures of a sample of the kernel's instantiations. AssertionError with the
    compiler's output where it does not compile. Kept in the build cache by content."""
    (item,) = (
        i for i in plan.objects(CHAIN, ("cuda",), (arch,), (variant.family,)) if i.name == variant.name
    )
    key = hashlib.sha256(item.key.encode() + Path(__file__).read_bytes()).hexdigest()[:20]
    kept = paths.build_cache() / "tests" / "sample" / f"{variant.family}-{variant.path.stem}-{key}"
    if not kept.with_suffix(".sass").is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            output, sass = _compile(item, Path(folder))
        _write(kept.with_suffix(".log"), output)
        _write(kept.with_suffix(".sass"), sass)
    return kept.with_suffix(".sass").read_text(), figures.parse_ptxas(kept.with_suffix(".log").read_text())


def _compile(item: plan.Object, folder: Path) -> tuple[str, str]:
    root = paths.cuda_sources()
    for file in source_closure(item.source):
        copy = folder / file.relative_to(root.resolve())
        copy.parent.mkdir(parents=True, exist_ok=True)
        others = _OTHERS.get(f"{item.family}/{item.name}", ()) if file == item.source.resolve() else ()
        copy.write_text(_sampled(file.read_text(), others))
    source, cubin = folder / item.source.relative_to(root), folder / "out.cubin"
    flags = [f for f in item.flags if f != "-lineinfo"]
    host = ["-ccbin", CHAIN.gxx.path] if CHAIN.gxx else []
    output = _run([CHAIN.nvcc.path, *host, *flags, "-cubin", str(source), "-o", str(cubin)])
    tools = {tool: toolchain.find_cuda_tool(CHAIN, tool) for tool in ("cuobjdump", "nvdisasm")}
    assert all(tools.values()), f"not installed: {[tool for tool, path in tools.items() if not path]}"
    path = os.pathsep.join([str(Path(tools["nvdisasm"]).parent), os.environ.get("PATH", "")])
    return output, demangle_text(_run([tools["cuobjdump"], "-sass", str(cubin)], PATH=path))


def _sampled(text: str, others: Iterable[tuple[str, str]]) -> str:
    """The source, with as many lines as before, whose host code asks for fewer instantiations: each value of
    a template parameter, not the product of all, and of sizes the usual ones. ``make test-archs`` compiles
    the product."""
    for old, new in others:
        assert old in text, f"{old!r} is no longer there: what does this kernel have of another's now?"
        text = text.replace(old, new)
    by_dtype = (_BY_DTYPE,) if "dispatch(" in text else ()
    for pattern, new in (*_FLOAT16, *by_dtype, *_PAIRS):
        text = re.sub(pattern, partial(_of_as_many_lines, new), text)
    return text


def _of_as_many_lines(new: str, found: re.Match[str]) -> str:
    made = found.expand(new)
    return made + "\n" * (found[0].count("\n") - made.count("\n"))


def _run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command,
        env=os.environ | {"LC_ALL": "C"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _write(file: Path, text: str) -> None:
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(file)
