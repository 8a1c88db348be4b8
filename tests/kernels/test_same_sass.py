"""Comparing the machine code of two source trees, and the record of what was proven equal."""

from __future__ import annotations

import json
import shutil

import pytest

import scripts.same_sass as same_sass
from fusescope.core import same_code, sources
from fusescope.core.machine import toolchain

pytestmark = pytest.mark.slow

needs_nvcc = pytest.mark.skipif(toolchain.detect().nvcc is None, reason="no nvcc on this machine")


@pytest.fixture
def edited(project, tmp_path):
    """A second copy of the project's kernels, to edit."""
    return shutil.copytree(project.cuda, tmp_path / "edited")


def compared(project, edited, *words) -> int:
    return same_sass.main([str(project.cuda), str(edited), "--jobs", "1", *words])


def edit(folder, name, old, new):
    file = folder / "add" / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def hashes(folder, monkeypatch, impl):
    monkeypatch.setenv("FUSESCOPE_CUDA", str(folder))
    return sources.families()["add"].variant(impl).source_hash


def test_comments_and_layout_are_no_difference(project, edited, capsys, monkeypatch):
    edit(edited, "v1_one_element.cu", "#include", "// A comment.\n/* another */\n#include")
    edit(edited, "cpu.cpp", "{", "{\n\n    // more\n")
    monkeypatch.setattr(same_sass, "machine_code", None)  # nothing is compiled
    assert compared(project, edited) == 0
    assert "add/cpu cpu: identical (same source but for comments and layout)" in capsys.readouterr().out


def test_text_inside_literals_counts(tmp_path):
    for name, text in (("a.cu", 'f("// a");'), ("b.cu", 'f("// b");'), ("c.cu", 'f(  "// a" ) ; // c')):
        (tmp_path / name).write_text(text)
    a, b, c = (same_sass.program(tmp_path / name) for name in ("a.cu", "b.cu", "c.cu"))
    assert a == c != b


def test_a_moved_header_is_the_same_program(tmp_path):
    (tmp_path / "one.cuh").write_text("#pragma once\nint one;\n")
    (tmp_path / "split.cu").write_text('#include "one.cuh"\n#include "one.cuh"\nint two;\n')
    (tmp_path / "whole.cu").write_text("int one;\nint two;\n")
    assert same_sass.program(tmp_path / "split.cu") == same_sass.program(tmp_path / "whole.cu")


@pytest.mark.long
@needs_nvcc
def test_renamed_variables_compile_to_the_same_code(project, edited, capsys):
    edit(edited, "v1_one_element.cu", "int64_t i = ", "int64_t element = ")
    text = (edited / "add" / "v1_one_element.cu").read_text()
    head, _, body = text.partition("int64_t element = ")
    (edited / "add" / "v1_one_element.cu").write_text(
        f"{head}int64_t element = {body.replace('(i <', '(element <').replace('[i]', '[element]')}"
    )
    assert compared(project, edited, "--impl", "v1_one_element") == 0
    assert "add/v1_one_element sm_90a: identical (" in capsys.readouterr().out


@pytest.mark.long
@needs_nvcc
def test_another_instruction_is_named(project, edited, capsys):
    edit(edited, "v1_one_element.cu", "+", "-")
    assert compared(project, edited, "--impl", "v1_one_element") == 1
    said = capsys.readouterr().out
    assert "add/v1_one_element sm_90a: differs: " in said and "add_one_element" in said and "\n    + " in said


def test_a_kernel_that_is_gone_or_broken_is_no_proof(project, edited, capsys):
    (edited / "add" / "v1_one_element.cu").unlink()
    edit(edited, "cpu.cpp", "{", "{ nonsense")
    assert compared(project, edited, "--record") == 1
    said = capsys.readouterr().out
    assert "only in OLD" in said and "does not compile: " in said and "nonsense" in said
    assert "add/cpu" not in json.loads((edited / same_code.FILE).read_text())


def test_proven_pairs_are_recorded_once(project, edited, monkeypatch):
    edit(edited, "cpu.cpp", "#include", "// A comment.\n#include")
    old, new = (hashes(folder, monkeypatch, "cpu") for folder in (project.cuda, edited))
    assert old != new and not same_code.same("add", "cpu", old, new)
    assert compared(project, edited, "--record") == compared(project, edited, "--record") == 0
    assert json.loads((edited / same_code.FILE).read_text()) == {"add/cpu": [[old, new]]}
    assert same_code.same("add", "cpu", old, new) and same_code.same("add", "cpu", new, old)
    assert not same_code.same("add", "v1_one_element", old, new) and not same_code.same(
        "add", "cpu", None, new
    )


def test_pairs_join_into_one_lineage(tmp_path, monkeypatch):
    monkeypatch.setenv("FUSESCOPE_CUDA", str(tmp_path))
    assert same_code.lineage("add", "cpu", "a") == {"a"}
    for pair in (("a", "b"), ("c", "d"), ("b", "c"), ("x", "y")):
        assert same_code.add(tmp_path, {("add", "cpu"): pair}) == 1
    assert same_code.add(tmp_path, {("add", "cpu"): ("a", "b"), ("add", "v1"): ("e", "e")}) == 0
    assert (
        same_code.lineage("add", "cpu", "d") == {"a", "b", "c", "d"} != same_code.lineage("add", "cpu", "x")
    )
    assert same_code.same("add", "cpu", "a", "a")


def test_an_unknown_place_is_named(tmp_path):
    with pytest.raises(ValueError, match="neither a folder of kernels nor a git revision"):
        same_sass.kernels_of("no-such-revision", tmp_path)
