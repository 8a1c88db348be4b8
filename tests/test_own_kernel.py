"""docs/own-kernel.md followed word for word: its files are written where it says, its commands run as they
stand."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys

import pytest

from fusescope import ops
from fusescope.cli import main
from fusescope.core.machine import toolchain
from fusescope.core.paths import ROOT

pytestmark = pytest.mark.slow

TEXT = (ROOT / "docs" / "own-kernel.md").read_text()
FILES = dict(re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```sh\n(.*?)\n```$", TEXT, re.MULTILINE | re.DOTALL)
ON_GPU = re.findall(r"^```sh gpu\n(.*?)\n```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with the common files and the softmax family, without our CUDA kernels: they only cost time
    here."""
    base = tmp_path_factory.mktemp("own kernel")
    shutil.copytree(ROOT / "cuda" / "common", base / "cuda" / "common")
    shutil.copytree(
        ROOT / "cuda" / "softmax", base / "cuda" / "softmax", ignore=shutil.ignore_patterns("v*.cu")
    )
    (base / "profiles").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("cuda", "build", "profiles"):
            patch.setenv(f"FUSESCOPE_{name.upper()}", str(base / name))
        patch.chdir(base)
        yield base


def write(project, name):
    """Put a file of the documentation where it says."""
    path = project / name
    path.write_text(FILES[name])
    return path


def run(capsys, command: str, *more: str):
    """A command of the documentation, with --json: (exit code, answer, standard error)."""
    words = shlex.split(command)
    assert words[0] == "fusescope"
    capsys.readouterr()
    code = main([*words[1:], *more, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def by_impl(answer) -> dict:
    return {r["impl"]: r for r in answer["records"]}


def test_every_operator_says_how_a_callable_is_called():
    told = re.findall(r"^\| (\w+) \| `f\(", TEXT, re.MULTILINE)
    assert sorted(told) == ops.names()


def test_the_documentation_has_what_is_tested_here():
    assert list(FILES) == [
        "cuda/softmax/v9_my_warp.cu",
        "cuda/softmax/cpu_my_loops.cpp",
        "my_softmax.py",
        "my_triton_softmax.py",
    ]
    assert len(COMMANDS) == 3 and len(ON_GPU) == 2


@pytest.mark.long
def test_a_dropped_in_cpu_kernel(project, capsys):
    file = write(project, "cuda/softmax/cpu_my_loops.cpp")
    code, answer, err = run(capsys, COMMANDS[1])
    assert code == 0, err
    found = by_impl(answer)
    assert {i: r["status"] for i, r in found.items()} == {"cpu_my_loops": "ok", "cpu": "ok", "eager": "ok"}
    mine = found["cpu_my_loops"]
    assert mine["speedup"]["of"] == "eager" and mine["time_ms"]["eager"]["median"] > 0 and mine["source_hash"]
    # An edit is another kernel: rebuilt without being asked, and told apart by its hash.
    file.write_text(file.read_text().replace("/ sum));", "/ sum) * 1.01f);"))
    code, answer, err = run(capsys, COMMANDS[1])
    edited = by_impl(answer)["cpu_my_loops"]
    assert code == 1 and edited["status"] == "wrong" and edited["time_ms"] is None
    assert edited["source_hash"] != mine["source_hash"]
    write(project, "cuda/softmax/cpu_my_loops.cpp")


@pytest.mark.long
def test_a_broken_kernel_is_named_and_harms_no_other(project, capsys):
    write(project, "cuda/softmax/cpu_my_loops.cpp")
    broken = project / "cuda" / "softmax" / "cpu_my_broken.cpp"
    broken.write_text(FILES["cuda/softmax/cpu_my_loops.cpp"].replace("float highest", "flaot highest"))
    try:
        code, answer, err = run(capsys, COMMANDS[1].replace("cpu_my_loops,", "cpu_my_broken,cpu_my_loops,"))
    finally:
        broken.unlink()
    found = by_impl(answer)
    assert code == 1 and {i: r["status"] for i, r in found.items()} == {
        "cpu_my_broken": "error",
        "cpu_my_loops": "ok",
        "cpu": "ok",
        "eager": "ok",
    }
    assert "cpu_my_broken" in err and "flaot" in found["cpu_my_broken"]["reason"]


@pytest.mark.long
def test_a_python_callable(project, capsys):
    write(project, "my_softmax.py")
    code, answer, err = run(capsys, COMMANDS[2])
    assert code == 0, err
    mine = by_impl(answer)["my_softmax.py:by_hand"]
    assert mine["status"] == "ok" and mine["speedup"]["verdict"] and mine["source_hash"]


@pytest.mark.long
def test_the_cuda_kernel_compiles_without_a_gpu(project, capsys):
    if toolchain.detect().nvcc is None:
        pytest.skip("no nvcc on this machine")
    write(project, "cuda/softmax/v9_my_warp.cu")
    code, answer, err = run(capsys, COMMANDS[0])
    assert code == 0, err
    made = [v for v in answer["variants"] if v["variant"] == "v9_my_warp"]
    assert [(v["arch"], v["status"]) for v in made] == [("sm_90a", "built")]
    assert len(made[0]["resources"]) == 3, "one function a dtype"
    assert all(r["registers"] > 0 and r["spills"] == 0 for r in made[0]["resources"])


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(2))
def test_on_a_gpu(project, capsys, number):
    for name in ("cuda/softmax/v9_my_warp.cu", "my_triton_softmax.py"):
        write(project, name)
    code, answer, err = run(capsys, ON_GPU[number], "--budget", "0.5")
    assert code == 0, err
    assert {r["status"] for r in answer["records"]} == {"ok"}


def test_every_python_file_of_the_documentation_is_valid(project):
    for name, text in FILES.items():
        if name.endswith(".py"):
            compile(text, name, "exec")
    assert sys.version_info >= (3, 11)
