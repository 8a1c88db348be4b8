"""Every CUDA kernel compiles for what it claims, and the machine code proves the claim: an instruction that
an architecture lacks may compile into a trap, so compiling alone proves nothing.

``make test`` compiles a sample of each kernel's instantiations for one architecture, the marker
``archs`` (make test-archs) the objects of the build for all architectures that the families claim.
"""

from __future__ import annotations

from functools import cache

import pytest

from fusescope.core.machine import toolchain
from fusescope.core.sources import ARCHS, families
from fusescope.kernels import inspect, plan, report
from fusescope.kernels.build import compile_objects
from tests.kernels import machine_code
from tests.kernels.conftest import GPU_ARCHS
from tests.kernels.machine_code import CHAIN, KERNELS, name, usual_arch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHAIN.nvcc is None, reason="no nvcc on this machine"),
    pytest.mark.timeout(1500),
]


def _words(given) -> str:
    return given if isinstance(given, str) else name(given)


@cache
def compiled(arch: str) -> dict:
    """{(family, kernel): first error or None}, all of them in one parallel build."""
    items = [i for i in plan.objects(CHAIN, ("cuda",), (arch,)) if i.name]
    errors = compile_objects(items)
    return {(i.family, i.name): errors[i.file] for i in items}


@pytest.mark.parametrize("variant", KERNELS, ids=name)
def test_compiles_without_spills_into_what_it_claims(variant):
    arch = usual_arch(variant)
    sass, resources = machine_code.sample(variant, arch)
    machine_code.check_registers(variant, arch, resources)
    machine_code.check_stores_and_claims(variant, arch, sass)


@pytest.mark.archs
@pytest.mark.parametrize(
    ("arch", "variant"), [(a, v) for a in ARCHS for v in KERNELS if plan.claims(v, a)], ids=_words
)
def test_every_claim_holds(arch, variant):
    assert compiled(arch)[variant.family, variant.name] is None
    if arch == usual_arch(variant):
        machine_code.check_registers(variant, arch, report.resources(variant.family, variant.name, arch))
    sass = inspect.sass(variant.family, variant.name, arch)
    machine_code.check_stores_and_claims(variant, arch, sass)


def _check(kernel: str, arch: str) -> None:
    variant = families()["add"].variant(kernel)
    sass, _ = machine_code.sample(variant, arch)
    machine_code.check_stores_and_claims(variant, arch, sass)


@pytest.mark.long
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
    with pytest.raises(AssertionError, match="stores nothing, so it is a trap"):
        _check("v3_trap", "sm_75")
    with pytest.raises(AssertionError, match="claims HMMA on sm_80"):
        _check("v3_trap", "sm_80")


@pytest.mark.long
def test_a_kernel_that_lets_the_next_start_without_waiting_is_caught(project):
    (project.add / "v3_early.cu").write_text(
        '// Does not wait.\n// archs: sm_90a\n#include "../common/dependent.cuh"\n#include "add.cuh"\n'
        "__global__ void early(float* out) {\n  let_next_start();\n  *out = 1;\n}\n"
        "FUSESCOPE_KERNEL(const AddArgs* args, void* stream) {\n"
        "  return launch_dependent(early, 1, 1, 0, (cudaStream_t)stream, 1, (float*)args->out);\n}\n"
    )
    with pytest.raises(AssertionError, match="lets the next kernel start and waits for none"):
        _check("v3_early", "sm_90a")


@pytest.mark.long
def test_a_load_that_the_assembler_may_move_before_the_wait_is_caught(project):
    (project.add / "v3_constant.cu").write_text(
        '// Reads as if nobody wrote.\n// archs: sm_90a\n#include "../common/dependent.cuh"\n'
        '#include "add.cuh"\n'
        "__global__ void constant(const float* in, float* out) {\n"
        "  wait_for_previous();\n  *out = __ldg(in);\n}\n"
        "FUSESCOPE_KERNEL(const AddArgs* args, void* stream) {\n"
        "  return launch_dependent(constant, 1, 1, 0, (cudaStream_t)stream, 1, (const float*)args->a,\n"
        "                          (float*)args->out);\n}\n"
    )
    with pytest.raises(AssertionError, match="may read before its wait"):
        _check("v3_constant", "sm_90a")


@pytest.mark.long
def test_a_sample_of_a_kernel_is_its_bfloat16_and_float32(gpu_project):
    add = families()["add"].variant("v1_one_element")
    sass, resources = machine_code.sample(add, "sm_80")
    whole = report.resources("add", add.name, "sm_80")
    assert len(resources) == 2 and len(whole) == 3
    assert "<__nv_bfloat16>" in sass and "<float>" in sass and "<__half>" not in sass
    gpu_project.edit(add.path, "int64_t i = ", "int64_t i = nonsense + ")
    with pytest.raises(AssertionError, match="nonsense"):
        machine_code.sample(add, "sm_80")


@pytest.mark.long
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


def test_the_cuda_library_loads_without_a_driver_and_says_so(gpu_project):
    import ctypes

    from fusescope.core.machine import nvml
    from fusescope.kernels.build import build

    if nvml.problem() is None or CHAIN.torch_has_cuda:
        pytest.skip(
            "this machine has a driver, or a torch with CUDA: the operators themselves are tested there"
        )
    library = ctypes.CDLL(build(archs=GPU_ARCHS, log=gpu_project.log).libraries["kernels/add"])
    entry = library.fusescope_add__v2_vectorised
    entry.restype, entry.argtypes = ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_void_p]
    answer = entry(ctypes.create_string_buffer(64), None).decode()
    assert "driver" in answer, answer
