"""Kernels with a score expression: built once, whoever asks, or refused in a sentence."""

import dataclasses
import shutil
import subprocess
import sys

import pytest

from fusescope.core import paths
from fusescope.core.errors import BuildError
from fusescope.core.machine import toolchain
from fusescope.core.score import cpp, parse
from fusescope.kernels import cache, plan, report
from fusescope.kernels.expressed import Wanted, library

pytestmark = pytest.mark.slow

PROGRAM = """
import torch
from fusescope.core.score import cpp, parse
from fusescope.kernels.expressed import Wanted, load
header = cpp.header(parse("score + 2 * k + slope[h]", {"slope": ("float", 1)}))
print(*load([Wanted(header, "cpu", None, "float32", 32)], print), sep="\\n")
"""


def wanted(text="score", impl="cpu", arch=None):
    return Wanted(cpp.header(parse(text, {})), impl, arch, "float16", 32)


@pytest.fixture
def empty_build(tmp_path, monkeypatch):
    """A build cache of its own, whose name has a blank."""
    monkeypatch.setenv("FUSESCOPE_BUILD", str(tmp_path / "a build"))
    monkeypatch.setattr(library, "_loaded", {})
    return tmp_path


def test_two_processes_at_once_build_it_once_and_a_third_finds_it(empty_build):
    command = [sys.executable, "-c", PROGRAM]
    both = [
        subprocess.Popen(command, cwd=paths.ROOT / "backend", stdout=subprocess.PIPE, text=True) for _ in "ab"
    ]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("compiling cpu with score + 2 * k + slope[h]" in text for text in said) == 1
    assert sum("compiled cpu with score + 2 * k + slope[h] in " in text for text in said) == 1
    third = subprocess.run(
        command, cwd=paths.ROOT / "backend", capture_output=True, text=True, check=True
    ).stdout
    assert third.count("\n") == 1 and {text.splitlines()[-1] for text in said} == {third.strip()}


def test_its_key_is_what_it_is_compiled_from(empty_build):
    chain = toolchain.detect()
    plain = library._object(chain, wanted("score + 2 * k"))
    assert library._object(chain, wanted("score+2*k")).key == plain.key  # the same code
    others = [wanted("score + 3 * k"), dataclasses.replace(wanted("score + 2 * k"), head_dim=40)]
    others.append(dataclasses.replace(wanted("score + 2 * k"), dtype="float32"))
    assert len({plain.key, *(library._object(chain, one).key for one in others)}) == 4
    assert plain.file not in {item.file for item in plan.objects(chain, ("cpu",), (), ("attention",))}


def test_what_cannot_be_built_is_said(empty_build, monkeypatch):
    broken = dataclasses.replace(wanted(), header="// score\nnot C++\n")
    with pytest.raises(BuildError, match=r"cpu with score does not compile: .*attention_score-.*error"):
        library.load([broken])
    with pytest.raises(ValueError, match="no cpu kernel v9_none of attention for the CPU"):
        library.load([wanted(impl="v9_none")])
    with pytest.raises(ValueError, match="no cuda kernel v4_scheduled of attention for sm_80"):
        library.load([wanted(impl="v4_scheduled", arch="sm_80")])
    without = dataclasses.replace(toolchain.detect(), nvcc=None)
    monkeypatch.setattr(toolchain, "detect", lambda: without)
    with pytest.raises(
        BuildError, match="nvcc, the CUDA compiler, missing: a score expression cannot be compiled"
    ):
        library.load([wanted(impl="v2_blockwise", arch="sm_80")])


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_a_cuda_kernel_is_built_for_one_architecture(empty_build):
    said: list[str] = []
    one = wanted("20 * tanh(score / 20)", "v2_blockwise", "sm_80")
    (name,) = library.load([one], said.append)
    assert (
        name.startswith("v2_blockwise__") and said[0] == "compiling v2_blockwise with 20 * tanh(score / 20)"
    )
    folder = report.folder_of(toolchain.detect())
    (built,) = folder.glob("*.so")
    assert (
        f"fusescope_attention__{name}"
        in subprocess.run(["nm", "-D", built], capture_output=True, text=True).stdout
    )
    assert library.load([one], said.append) == [name] and len(said) == 2
    before = {file.suffix for file in folder.iterdir()}
    cache.prune(folder, [])  # below the limit
    assert before == {file.suffix for file in folder.iterdir()} >= {".h", ".o", ".so"}
