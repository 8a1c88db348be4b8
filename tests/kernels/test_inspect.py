"""PTX and SASS of a kernel."""

from __future__ import annotations

import pytest

from fusescope.core.errors import BuildError
from fusescope.core.machine import toolchain
from fusescope.kernels import inspect

pytestmark = pytest.mark.skipif(toolchain.detect().nvcc is None, reason="no nvcc on this machine")


@pytest.mark.long
def test_ptx_is_made_for_the_architecture_and_kept(project, monkeypatch):
    text = inspect.ptx("add", "v1_one_element", "sm_90")
    assert ".target sm_90a" in text and ".entry" in text
    with monkeypatch.context() as patch:
        patch.setattr(inspect, "_run", None)  # read, not compiled
        assert inspect.ptx("add", "v1_one_element", "sm_90a") == text
    assert ".target sm_80" in inspect.ptx("add", "v1_one_element", "sm_80")


@pytest.mark.slow
def test_sass_has_readable_names(gpu_project):
    text = inspect.sass("add", "v1_one_element", "sm_80")
    assert "add_one_element<float>(" in text and "FADD" in text and ".target\tsm_80" in text


def test_what_does_not_exist_is_named(project):
    for ask, message in (
        (("mul", "v1", "sm_80"), "no kernel family 'mul'; known: add"),
        (("add", "v9", "sm_80"), "add has no kernel 'v9'; it has v1_one_element"),
        (("add", "cpu", "sm_80"), "add/cpu is a CPU kernel"),
        (("add", "v1_one_element", "sm_42"), "does not support sm_42; it supports"),
    ):
        with pytest.raises(ValueError, match=message):
            inspect.ptx(*ask)
        with pytest.raises(ValueError, match=message):
            inspect.sass(*ask)


@pytest.mark.slow
def test_a_kernel_that_does_not_compile_gives_the_compilers_error(project):
    source = project.add / "v1_one_element.cu"
    project.edit(source, "int64_t i = ", "int64_t i = nonsense + ")
    with pytest.raises(BuildError, match="nonsense"):
        inspect.ptx("add", "v1_one_element", "sm_80")
    with pytest.raises(BuildError, match="nonsense"):
        inspect.sass("add", "v1_one_element", "sm_80")


def test_missing_tools_name_what_to_install(project, monkeypatch):
    monkeypatch.setattr(inspect, "find_cuda_tool", lambda chain, name: None)
    with pytest.raises(
        BuildError, match=r"cuobjdump and nvdisasm missing.*pip install '?nvidia-cuda-cuobjdump"
    ):
        inspect.sass("add", "v1_one_element", "sm_80")
    monkeypatch.setenv("CUDACXX", "/nowhere/nvcc")
    with pytest.raises(BuildError, match="nvcc, the CUDA compiler, is missing"):
        inspect.ptx("add", "v1_one_element", "sm_80")


def test_source_is_the_file_as_it_is_now(project):
    assert inspect.source("add", "cpu").startswith("// One vectorised pass")
