"""The command line itself, and the verbs that need no job: occupancy, mask, doctor, build."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from fusescope import cli, masks
from fusescope.core.machine import environment
from fusescope.core.paths import ROOT


def test_overview_lists_every_verb(call):
    got = call("--help")
    assert got.code == 0
    for verb in cli.names():
        assert f"  {verb}" in got.out and cli.load(verb).HELP in got.out
    assert call().code == 2
    assert call("--version").out.startswith("fusescope ")


@pytest.mark.parametrize("verb", cli.names())
def test_every_verb_has_help(verb, call):
    got = call(verb, "--help")
    assert got.code == 0 and got.out.startswith("usage: fusescope " + verb)


def test_unknown_verbs_and_options(refused):
    assert "unknown verb 'bnech'; did you mean bench" in refused("bnech")
    assert "unrecognized arguments: --sequence 3" in refused(
        "mask", "causal", "--seq", "8", "--sequence", "3"
    )
    assert "unrecognized arguments: --tiles 3" in refused("mask", "causal", "--seq", "8", "--tiles", "3")


def test_as_a_process_without_torch_or_streamlit():
    """The verbs that describe need neither torch nor the app's packages: those are hidden here, and nothing
    tries to import them."""
    code = (
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in "
        "('torch', 'streamlit', 'plotly', 'duckdb', 'pandas', 'xgboost', 'msgspec'):\n"
        "            raise ModuleNotFoundError(name, name=name.split('.')[0])\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "from fusescope.cli import main\n"
        "words = ('occupancy --cc 8.6 --block 128 --registers 40 --json', "
        "'mask causal --seq 64', 'runs list')\n"
        "codes = [main(w.split()) for w in words]\n"
        "print(codes)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[0, 0, 1]", done.stderr
    assert "duckdb" in done.stderr and "pip install duckdb" in done.stderr and "Traceback" not in done.stderr


def test_module_runs_as_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "fusescope", "mask", "causal", "--seq", "4", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and json.loads(done.stdout)["kept"] == 10 and done.stderr == ""


def test_occupancy(call, valid, refused):
    got = call(
        "occupancy",
        "--cc",
        "9.0",
        "--block",
        "256",
        "--registers",
        "64",
        "--dynamic-smem",
        "100000",
        "--json",
    )
    assert got.code == 0 and got.err == ""
    valid("occupancy", got.data)
    assert (got.data["active_blocks"], got.data["occupancy"], got.data["limiter"]) == (
        2,
        0.25,
        "shared memory",
    )
    text = call("occupancy", "--cc", "9.0", "--block", "256", "--registers", "64").out
    assert "occupancy 50.0 %: 4 blocks, 32 warps" in text and "limiter   registers" in text
    impossible = call("occupancy", "--cc", "7.5", "--block", "2048", "--registers", "64", "--json")
    valid("occupancy", impossible.data)
    assert impossible.code == 0 and impossible.data["limiter"] == "unlaunchable"
    assert "known for compute capability 7.5" in refused(
        "occupancy", "--cc", "5.0", "--block", "256", "--registers", "64"
    )
    assert "argument --block: must be an integer from 1 to 2,147,483,647, not 0" in refused(
        "occupancy", "--cc", "9.0", "--block", "0", "--registers", "64"
    )
    assert "must be an integer from 1 to 2,147,483,647, not 'x'" in refused(
        "occupancy", "--cc", "9.0", "--block", "x", "--registers", "64"
    )


@pytest.mark.parametrize("name", masks.names())
def test_mask(name, call, valid):
    text = "padding:lengths=30+80" if name == "padding" else name
    got = call("mask", text, "--seq", "80", "--seq-k", "96", "--tile", "16", "--json")
    assert got.code == 0
    valid("mask", got.data)
    dense = masks.parse(text).dense(80, 96)
    assert got.data["kept"] == dense.sum() and got.data["density"] == pytest.approx(dense.mean())
    assert np.array_equal(masks.parse(got.data["resolved"]).dense(80, 96), dense)
    human = call("mask", text, "--seq", "80", "--seq-k", "96", "--tile", "16")
    assert human.code == 0 and "density" in human.out and "storage" in human.out
    picture = human.out.splitlines()[3:23]
    assert all(set(line) <= set(" ░▒▓█") for line in picture) and "".join(picture).strip()


def test_mask_saved_and_read_back(call, valid, refused, tmp_path):
    file = tmp_path / "mask.npy"
    first = call("mask", "bigbird:seed=3", "--seq", "100", "--save", file, "--json")
    valid("mask", first.data)
    assert first.data["saved"] == str(file)
    again = call("mask", f"file:{file}", "--seq", "100", "--json")
    valid("mask", again.data)
    assert (
        again.data["kept"] == first.data["kept"]
        and again.data["storage_bytes"] == first.data["storage_bytes"]
    )
    call("mask", "padding:lengths=3+5", "--seq", "8", "--save", tmp_path / "batch.npy")
    assert np.load(tmp_path / "batch.npy").shape == (2, 8, 8)
    assert "--save writes a .npy file" in refused(
        "mask", "causal", "--seq", "8", "--save", tmp_path / "mask.png"
    )
    assert "there is no folder" in refused(
        "mask", "causal", "--seq", "8", "--save", tmp_path / "no" / "mask.npy"
    )


def test_bad_masks_are_one_sentence(refused):
    assert "unknown mask 'bigbrd'; did you mean bigbird?" in refused("mask", "bigbrd", "--seq", "8")
    assert "mask needs" in refused("mask", "padding", "--seq", "8") or "needs lengths" in refused(
        "mask", "padding", "--seq", "8"
    )
    assert "argument --seq: must be an integer from 1 to" in refused("mask", "causal", "--seq", "0")
    assert "--tile: must be an integer from 1 to" in refused("mask", "causal", "--seq", "8", "--tile", "0")
    assert "at most 2^33 elements" in refused("mask", "causal", "--seq", "1000000")
    assert "required: --seq" in refused("mask", "causal")


def test_a_self_check_of_a_gpu_that_is_not_there_is_one_sentence(refused, monkeypatch):
    monkeypatch.setattr(environment, "devices", lambda: ["cpu"])
    assert "--gpu needs an NVIDIA GPU, and none was found" in refused("selfcheck", "--gpu", "--seeds", "1")


def test_doctor(call, valid):
    got = call("doctor", "--json")
    valid("doctor", got.data)
    assert got.data["devices"][-1] == "cpu" and len(got.data["findings"]) > 5
    assert got.code == (0 if got.data["ok"] else 1)
    assert got.data["ok"] == all(f["status"] != "fail" for f in got.data["findings"])
    human = call("doctor")
    for finding in got.data["findings"]:
        assert f"{finding['check']}: " in human.out
        assert finding["status"] == "ok" or finding["fix"] in human.out


def test_a_failed_finding_is_exit_code_1(call, monkeypatch):
    from fusescope.core.doctor import Finding

    monkeypatch.setattr(
        "fusescope.cli.verbs.doctor.examine",
        lambda: [Finding("ninja", "fail", "ninja is missing", "pip install ninja")],
    )
    got = call("doctor")
    assert got.code == 1 and "✗ ninja: ninja is missing" in got.out and "fix: pip install ninja" in got.out


@pytest.mark.slow
def test_build_of_a_broken_kernel_is_named(call, valid, small_project):
    """One kernel that does not compile fails by name; the others are built; exit code 1."""
    got = call("build", "--json")
    assert got.code == 0, got.err
    valid("build", got.data)
    assert got.data["ok"] and {v["variant"] for v in got.data["variants"]} >= {"cpu", "binding.cpp"}
    again = call("build")
    assert again.code == 0 and "nothing had to be built" in again.out
    (small_project / "add" / "cpu_broken.cpp").write_text(
        '// Forgets a semicolon.\n#include "add.cuh"\nint x = 1\n'
    )
    broken = call("build", "--json")
    valid("build", broken.data)
    assert broken.code == 1
    assert {v["variant"]: v["status"] for v in broken.data["variants"]}["cpu_broken"] == "failed"
    assert {v["variant"]: v["status"] for v in broken.data["variants"]}["cpu"] == "built"
    human = call("build")
    assert human.code == 1 and "✗ add/cpu_broken cpu: " in human.out


def test_build_refuses_an_architecture_that_is_none(refused):
    assert "sm_9000" in refused("build", "--arch", "sm_9000")


def test_a_folder_that_cannot_be_used_is_one_sentence(call, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(tmp_path / "file"))
    got = call("runs", "list")
    assert (
        got.code == 1 and got.err.startswith(f"error: {tmp_path / 'file'}") and "Not a directory" in got.err
    )
    assert "Error" not in got.err and got.err.count("\n") == 1


def test_build_takes_families_and_architectures(monkeypatch):
    from types import SimpleNamespace

    from fusescope import cli
    from fusescope.kernels import build

    asked = {}

    def record(archs, clean, log, families):
        asked.update(archs=archs, clean=clean, families=families)
        return SimpleNamespace(
            to_json=lambda: {"variants": []}, variants=[], failed=[], causes=[], reused=True, ok=True
        )

    monkeypatch.setattr(build, "build", record)
    assert cli.main(["build", "add", "gemm", "--arch", "sm_80,sm_90a"]) == 0
    assert asked == {"archs": ["sm_80", "sm_90a"], "clean": False, "families": ("add", "gemm")}
    assert cli.main(["build", "--clean"]) == 0 and asked["families"] is None


def test_the_device_of_another_machine_has_no_architecture_here():
    from types import SimpleNamespace

    from fusescope.cli import case_options

    given = SimpleNamespace(device="cuda:0", cluster="tcp://host:8786")
    assert case_options.device(given) == ("cuda:0", None)


def test_a_model_that_memory_does_not_hold_is_reduced_and_that_is_said(monkeypatch, capsys):
    from fusescope import models
    from fusescope.cli.verbs import model

    fewer = lambda name, case, *more: ({**case, "layers": 3}, "reduced to 3 of its 32 layers")  # noqa: E731
    monkeypatch.setattr(models, "reduced", fewer)
    words = ["llama3-8b", "--device", "cpu", "--case", "batch=1,seq=8"]
    parser = cli.Parser()
    model.arguments(parser, words)
    (case,) = model.specify(parser.parse_args(words))["cases"]
    assert case["layers"] == 3 and "reduced to 3 of its 32 layers" in capsys.readouterr().err


STOPPED = [
    "model bert-small --impl eager --case batch=1,seq=8 --device cpu",
    "search --strategy additive --evaluations 2 --seq 16 --heads 2 --head-dim 32 --device cpu",
]


@pytest.mark.parametrize("words", STOPPED, ids=[words.split()[0] for words in STOPPED])
def test_a_job_that_was_stopped_is_exit_code_1(call, profiles, monkeypatch, words):
    from fusescope.cli import follow
    from fusescope.store import folder, library

    def stopped(kind, spec, title=""):
        path = folder.create(kind, spec)
        writer = folder.Writer(path)
        writer.state("cancelled", "stopped on request")
        writer.close()
        return path.name

    monkeypatch.setattr(follow, "submitted", stopped)
    monkeypatch.setattr(follow, "follow", lambda run_id: folder.read(library.find(run_id)))
    got = call(*words.split())
    assert got.code == 1 and re.search(r"\d{8}-\d{6}-(model|search)-", got.out + got.err), got
