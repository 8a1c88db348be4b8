"""Every CUDA kernel compiles for what it claims, and the machine code proves the claim: an instruction that
an architecture lacks may compile into a trap, so compiling alone proves nothing.

``make test`` compiles for one architecture; the marker ``archs`` (make test-archs) for all that the families
claim.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from fusescope.core.machine import toolchain
from fusescope.core.sources import ARCHS, families
from fusescope.kernels import inspect, plan, report
from fusescope.kernels.build import compile_objects

CHAIN = toolchain.detect()
KERNELS = [v for f in families().values() for v in f.variants if v.device == "cuda"]
FIRST = "sm_90a"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHAIN.nvcc is None, reason="no nvcc on this machine"),
    pytest.mark.timeout(1500),
]
_STORES = re.compile(r"\b(ST|STG|STL|STS|RED|ATOM|ATOMG|REDG|UTMASTG|UTMAREDG|UBLKCP)\b")


def name(variant) -> str:
    return f"{variant.family}/{variant.name}"


def _words(given) -> str:
    return given if isinstance(given, str) else name(given)


def usual_arch(variant) -> str:
    """The one architecture of ``make test``: sm_90a, or the newest that the kernel claims."""
    return FIRST if plan.claims(variant, FIRST) else variant.archs[-1]


@cache
def compiled(archs: tuple[str, ...], usual: bool) -> dict:
    """{(family, kernel, arch): first error or None}, all of them in one parallel build."""
    items = [i for i in plan.objects(CHAIN, ("cuda",), archs) if i.name]
    if usual:
        chosen = {(v.family, v.name): usual_arch(v) for v in KERNELS}
        items = [i for i in items if chosen[i.family, i.name] == i.arch]
    errors = compile_objects(items)
    return {(i.family, i.name, i.arch): errors[i.file] for i in items}


def spills_documented(variant) -> bool:
    """Whether the family's README has a line "spills of `kernel`: why that is right"."""
    readme = variant.path.with_name("README.md")
    return (
        readme.is_file()
        and re.search(rf"^- spills of `{variant.path.stem}`: \S", readme.read_text(), re.MULTILINE)
        is not None
    )


def check_machine_code(variant, arch: str) -> None:
    functions = re.split(
        r"^\s*Function : ", inspect.sass(variant.family, variant.name, arch), flags=re.MULTILINE
    )[1:]
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
    for mnemonic in variant.expects:
        used = any(re.search(rf"\b{re.escape(mnemonic)}\b", body) for body in functions)
        assert used, f"{name(variant)} claims {mnemonic} on {arch}; its machine code has none"


@pytest.mark.parametrize("variant", KERNELS, ids=name)
def test_compiles_without_spills(variant):
    arch = usual_arch(variant)
    usual = tuple(sorted({usual_arch(v) for v in KERNELS}))
    assert compiled(usual, True)[variant.family, variant.name, arch] is None
    figures = report.resources(variant.family, variant.name, arch)
    assert figures and all(r.registers > 0 for r in figures)
    spilled = {r.name: r.spills for r in figures if r.spills}
    assert not spilled or spills_documented(variant), (
        f"{name(variant)} spills on {arch}, and its family's README has no line "
        f"'- spills of `{variant.path.stem}`: why': {spilled}"
    )


@pytest.mark.parametrize("variant", [v for v in KERNELS if v.expects], ids=name)
def test_uses_the_instructions_it_claims(variant):
    check_machine_code(variant, usual_arch(variant))


@pytest.mark.archs
@pytest.mark.parametrize(
    ("arch", "variant"), [(a, v) for a in ARCHS for v in KERNELS if plan.claims(v, a)], ids=_words
)
def test_every_claim_holds(arch, variant):
    assert compiled((arch,), False)[variant.family, variant.name, arch] is None
    check_machine_code(variant, arch)


def test_a_kernel_compiled_into_a_trap_is_caught(project):
    """The check itself: a kernel whose body exists from sm_80 on only, and which claims more."""
    (project.add / "v3_trap.cu").write_text(
        "// Uses what sm_75 lacks.\n// archs: sm_75 sm_80\n// expects: HMMA\n"
        '#include "../common/launch.cuh"\n#include "add.cuh"\n'
        "__global__ void trap(float* out) {\n"
        "#if __CUDA_ARCH__ >= 800\n  *out = 1;\n#else\n  __trap();\n#endif\n}\n"
        "FUSESCOPE_KERNEL(const AddArgs* args, void* stream) {\n"
        "  trap<<<1, 1, 0, (cudaStream_t)stream>>>((float*)args->out);\n  return launch_error();\n}\n"
    )
    trap = families()["add"].variant("v3_trap")
    with pytest.raises(AssertionError, match="stores nothing, so it is a trap"):
        check_machine_code(trap, "sm_75")
    with pytest.raises(AssertionError, match="claims HMMA on sm_80"):
        check_machine_code(trap, "sm_80")


def test_a_kernel_that_lets_the_next_start_without_waiting_is_caught(project):
    (project.add / "v3_early.cu").write_text(
        '// Does not wait.\n// archs: sm_90a\n#include "../common/dependent.cuh"\n#include "add.cuh"\n'
        "__global__ void early(float* out) {\n  let_next_start();\n  *out = 1;\n}\n"
        "FUSESCOPE_KERNEL(const AddArgs* args, void* stream) {\n"
        "  return launch_dependent(early, 1, 1, 0, (cudaStream_t)stream, 1, (float*)args->out);\n}\n"
    )
    with pytest.raises(AssertionError, match="lets the next kernel start and waits for none"):
        check_machine_code(families()["add"].variant("v3_early"), "sm_90a")


def test_the_architectures_of_the_compiler_are_accepted_and_others_named(gpu_project):
    from fusescope.kernels.build import build

    newest = toolchain.known_archs(CHAIN)[-1]
    result = build(archs=["sm_80", newest], log=gpu_project.log)
    assert result.ok, gpu_project.text
    assert {v.arch for v in result.variants if v.variant == "v2_vectorised"} == {"sm_80", newest}
    assert all(report.resources("add", "v2_vectorised", a) for a in ("sm_80", newest))
    with pytest.raises(
        ValueError, match=r"nvcc \S+ does not support sm_42; it supports sm_75, sm_80.*sm_90a"
    ):
        build(archs=["sm_42"], log=gpu_project.log)
    with pytest.raises(ValueError, match="an architecture is written sm_ and its compute capability"):
        build(archs=["hopper"], log=gpu_project.log)


def test_the_cuda_library_loads_without_a_driver_and_says_so(project):
    import ctypes

    from fusescope.core.machine import nvml
    from fusescope.kernels.build import build

    if nvml.problem() is None or CHAIN.torch_has_cuda:
        pytest.skip(
            "this machine has a driver, or a torch with CUDA: the operators themselves are tested there"
        )
    library = ctypes.CDLL(build(archs=["sm_90a"], log=project.log).libraries["kernels"])
    entry = library.fusescope_add__v2_vectorised
    entry.restype, entry.argtypes = ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_void_p]
    answer = entry(ctypes.create_string_buffer(64), None).decode()
    assert "driver" in answer, answer
