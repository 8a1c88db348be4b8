"""Building: what is rebuilt and what is not, and that one broken source costs nobody else."""

from __future__ import annotations

import json
import os

import pytest

from fusescope.core.errors import BuildError
from fusescope.core.machine import toolchain
from fusescope.core.sources import families
from fusescope.kernels import figures, plan, report
from fusescope.kernels.build import build, seconds_missing

pytestmark = pytest.mark.slow


def cpu(project, **more):
    return build(units=("cpu",), log=project.log, **more)


def status(report_, family, variant):
    return next(v for v in report_.variants if (v.family, v.variant) == (family, variant))


def test_unchanged_sources_are_not_rebuilt(project):
    for file in project.cuda.rglob("*.*"):
        os.utime(file)  # newer time stamps alone
    result = cpu(project)
    assert result.ok and result.reused and result.compiled == 0


def test_an_edit_is_rebuilt_whatever_its_time_stamp_and_reverting_it_finds_the_old_object(project):
    before = cpu(project)
    project.edit(project.add / "cpu.cpp", "n > 16384", "n > 16385")
    assert report.state()["add"]["cpu"]["status"] == "stale"
    edited = cpu(project)
    assert edited.compiled == 1 and edited.ok and edited.libraries != before.libraries
    project.edit(project.add / "cpu.cpp", "n > 16385", "n > 16384")
    again = cpu(project)
    assert again.compiled == 0 and again.libraries == before.libraries


def test_a_header_counts_as_source(project):
    chain = toolchain.detect()
    before = {i.title: i.key for i in plan.objects(chain, ("cpu",))}
    project.edit(project.cuda / "common" / "interface.h", "FS_BFLOAT16 = 2", "FS_BFLOAT16 = 2 ")
    after = {i.title: i.key for i in plan.objects(chain, ("cpu",))}
    assert before.keys() == after.keys() and all(before[k] != after[k] for k in before)


def test_flags_compiler_torch_cpu_and_architecture_count(project):
    import dataclasses

    chain = toolchain.detect()
    keys = lambda c, unit="cpu", archs=(): {i.key for i in plan.objects(c, (unit,), archs)}  # noqa: E731
    compiler = dataclasses.replace(chain, gxx=toolchain.Tool("/usr/bin/g++", "99.1"))
    assert not keys(chain) & keys(compiler)
    other_torch = dataclasses.replace(chain, torch_version="2.99")
    assert len(keys(chain) & keys(other_torch)) == 1  # the kernel knows no torch
    assert other_torch.key != chain.key != dataclasses.replace(chain, cpu="another CPU").key
    both = plan.objects(chain, ("cuda",), ("sm_80", "sm_90a"))
    assert len({i.key for i in both}) == len(both) == 1 + 2 * len(families()["add"].variants[:-1])


@pytest.mark.long
def test_a_broken_kernel_is_reported_and_the_others_are_built(project):
    (project.add / "cpu_wrong.cpp").write_text(
        '// Does not compile.\n#include "../common/cpu.h"\n#include "add.cuh"\nint f() { return nonsense; }\n'
    )
    result = cpu(project)
    wrong = status(result, "add", "cpu_wrong")
    assert (
        not result.ok
        and wrong.status == "failed"
        and "nonsense" in wrong.error
        and wrong.error in project.text
    )
    assert status(result, "add", "cpu").status == "built" and "cpu/add" in result.libraries
    assert report.state()["add"]["cpu_wrong"] == {
        "status": "failed",
        "error": wrong.error,
        "archs": {"cpu": "failed"},
    }
    code = (
        "from fusescope import kernels; import torch; a = torch.ones(3)\n"
        "print(kernels.call('add', a, a, impl='cpu'))\n"
        "kernels.call('add', a, a, impl='cpu_wrong')"
    )
    asked = project.torch(code)
    assert "tensor([2., 2., 2.])" in asked.stdout
    assert "BuildError: add/cpu_wrong failed to build" in asked.stderr and "nonsense" in asked.stderr


def test_a_broken_binding_does_not_block_other_families(project):
    family = project.cuda / "broken"
    family.mkdir()
    (family / "binding.cpp").write_text('#include "../common/binding.h"\nthis is no C++\n')
    result = cpu(project)
    assert status(result, "broken", "binding.cpp").status == "failed"
    assert status(result, "add", "binding.cpp").status == "built" and "cpu/add" in result.libraries


def test_a_function_declared_and_defined_nowhere_is_named_with_the_file_that_declares_it(project):
    (project.add / "promised.h").write_text("#pragma once\nfloat promised(float x, int n);\n")
    (project.add / "cpu_calls.cpp").write_text(
        '// Calls what nobody wrote.\n#include "../common/cpu.h"\n#include "add.cuh"\n#include "promised.h"\n'
        "FUSESCOPE_KERNEL(const AddArgs* args, void*) {\n"
        "  return promised(1.f, 2) > 0 ? nullptr : nullptr;\n}\n"
    )
    result = cpu(project)
    error = status(result, "add", "cpu_calls").error
    assert "promised(float, int)" in error and "cuda/add/promised.h:2" in error, error
    assert (
        result.causes[0]["check"] == "undefined symbol"
        and "cuda/add/promised.h:2" in result.causes[0]["says"]
    )
    assert status(result, "add", "cpu").status == "built" and "cpu/add" in result.libraries


def test_two_kernels_may_use_the_same_names(project):
    (project.add / "cpu_same.cpp").write_text(
        '// Adds a constant instead.\n// sweep: K=1,2\n#include "../common/cpu.h"\n#include "add.cuh"\n'
        "template <typename T> T constant() { return T(K); }\nint counter = K;\n"
        "FUSESCOPE_KERNEL(const AddArgs* args, void*) {\n"
        "  for (int64_t i = 0; i < args->n; ++i) ((float*)args->out)[i] = constant<float>() + counter;\n"
        "  return nullptr;\n}\n"
    )
    assert cpu(project).ok
    code = (
        "from fusescope import kernels; import torch; a = torch.ones(1)\n"
        "print([kernels.call('add', a, a, impl=f'cpu_same:K={k}').item() for k in (1, 2)])"
    )
    done = project.torch(code)
    assert "[2.0, 4.0]" in done.stdout, done.stderr


@pytest.mark.long
def test_two_bindings_may_use_the_same_names(project):
    import shutil

    project.edit(project.add / "binding.cpp", "namespace {", "int helper() { return 1; }\nnamespace {")
    shutil.copytree(project.add, project.cuda / "more", ignore=shutil.ignore_patterns("*.cu", "cpu.cpp"))
    project.edit(project.cuda / "more" / "binding.cpp", 'm.def("add(', 'm.def("more(')
    project.edit(project.cuda / "more" / "binding.cpp", 'm.impl("add"', 'm.impl("more"')
    result = cpu(project)
    assert result.ok and "cpu/add" in result.libraries, project.text
    done = project.torch(
        "from fusescope import kernels; import torch; kernels.load('cpu')\n"
        "print(torch.ops.fusescope.more.default._schema)"
    )
    assert "fusescope::more(Tensor a" in done.stdout, done.stderr


@pytest.mark.long
def test_clean_compiles_everything_again(project):
    result = cpu(project, clean=True)
    assert result.ok and result.compiled == 2 and not result.reused


def test_the_cache_keeps_the_current_objects_and_drops_old_ones(project, monkeypatch):
    project.edit(project.add / "cpu.cpp", "n > 16384", "n > 16385")
    cpu(project)
    folder = report.folder_of(toolchain.detect())
    assert len(list(folder.glob("add-cpu-*.o"))) == 2
    monkeypatch.setenv("FUSESCOPE_BUILD_GB", "0.000001")
    cpu(project)
    kept = {p.name for p in folder.glob("*.o")}
    assert kept == {i.file for i in plan.objects(toolchain.detect(), ("cpu",))}
    assert cpu(project).reused
    monkeypatch.setenv("FUSESCOPE_BUILD_GB", "a lot")
    with pytest.raises(ValueError, match=r"FUSESCOPE_BUILD_GB is a number of gigabytes, not 'a lot'"):
        cpu(project)


def test_a_number_of_compilers_that_is_none(project, monkeypatch):
    project.edit(project.add / "cpu.cpp", "n > 16384", "n > 16385")
    monkeypatch.setenv("FUSESCOPE_JOBS", "many")
    with pytest.raises(ValueError, match="FUSESCOPE_JOBS is a number of compilers from 1, not 'many'"):
        build(units=("cpu",), log=project.log)


def test_no_family_is_an_error(project, monkeypatch, tmp_path):
    monkeypatch.setenv("FUSESCOPE_CUDA", str(tmp_path))
    with pytest.raises(BuildError, match="holds no family"):
        cpu(project)


def test_the_report_survives_json_and_is_saved(project):
    result = cpu(project)
    assert report.BuildReport.from_json(json.loads(json.dumps(result.to_json()))) == result
    saved = json.loads((report.folder_of(toolchain.detect()) / "report.json").read_text())
    assert saved == result.to_json()
    assert report.latest().variants == result.variants


def test_state_tells_what_was_never_built(project):
    (project.add / "cpu_new.cpp").write_text('// New.\n#include "../common/cpu.h"\n')
    states = report.state()["add"]
    assert states["cpu"]["status"] == "built" and states["binding.cpp"]["status"] == "built"
    assert states["cpu_new"]["status"] == states["v1_one_element"]["status"] == "not built"
    assert report.latest() is None


def test_figures_of_ptxas_are_read_per_kernel():
    text = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 168 registers, used 2 barriers, 49152 bytes smem
ptxas info    : Function properties for helper
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'second' for 'sm_75'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, 380 bytes cmem[0]
"""
    first, second = figures.parse_ptxas(text)
    assert first == figures.KernelResources("first", 168, 49152, 32, 16, 2)
    assert second == figures.KernelResources("second", 16, 0, 0, 0, 0)


def test_one_family_alone_is_built(project):
    import shutil

    shutil.copytree(project.add, project.cuda / "more")
    (project.cuda / "more" / "binding.cpp").write_text("// No operator.\n")
    result = cpu(project, families=("add",))
    assert result.ok and result.compiled == 0 and {v.family for v in result.variants} == {"add"}
    assert report.state()["more"]["cpu"]["status"] == "not built"  # and what add was is not forgotten
    project.edit(project.cuda / "more" / "cpu.cpp", "return nullptr;", "return nonsense;")
    assert not cpu(project, families=("more",)).ok
    assert {v.family for v in report.saved(toolchain.detect()).variants} == {"add", "more"}
    with pytest.raises(ValueError, match="no kernel family addd; known: add, more"):
        cpu(project, families=("addd",))


@pytest.mark.long
def test_what_a_build_will_take_is_known_beforehand(project):
    assert seconds_missing("cpu") == 0
    project.edit(project.add / "cpu.cpp", "n > 16384", "n > 16386")
    one = seconds_missing("cpu")
    project.edit(project.cuda / "common" / "interface.h", "FS_BFLOAT16 = 2", "FS_BFLOAT16 = 2 ")
    assert 1.0 < one < seconds_missing("cpu")
    said: list[tuple[int, int, str]] = []
    cpu(project, progress=lambda *words: said.append(words))
    assert seconds_missing("cpu") == 0
    assert any(what.startswith("add/") and done < total for done, total, what in said)
