"""A model on two ranks of the CPU over gloo: right in every layout, measured as a job, and gone without a
trace when a rank dies or a stop is asked for."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from fusescope import cli
from fusescope.core import paths
from fusescope.core.paths import ROOT
from fusescope.jobs import submit
from fusescope.jobs.parallel import TRACES, launch
from fusescope.models.describe import layouts
from fusescope.store import folder, library

pytestmark = pytest.mark.slow
PATIENCE_S = 240
CASE = {"batch": 4, "seq": 16, "layers": 2, "heads": 2, "head_dim": 32}
MOST = {"float32": 2e-5}
"""Of an element: three times the largest that any layout, or one device, was seen to be off."""


def environment():
    return os.environ | {"PYTHONPATH": paths.python_path()}


def schema(name):
    return json.loads((ROOT / "backend" / "fusescope" / "schemas" / f"{name}.json").read_text())


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", ["bert-small", "llama-small", "gpt2"])
def test_a_family_in_every_layout_equals_one_device(family, tmp_path):
    script, store = str(Path(__file__).with_name("two_ranks.py")), str(tmp_path / "store")
    command = [sys.executable, script, store, family]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == (9 if family == "bert-small" else 6)
    for impl, (error, held) in found.items():
        assert error is not None and error < MOST["float32"], (impl, error)
        layout = layouts.named(impl)[1]
        if layout.tp * layout.pp > 1:
            assert max(held) < found["sdpa"][1][0], "a rank holds less than the whole model"


@pytest.fixture(scope="module")
def answer():
    """What ``fusescope parallel --json`` says of tensor and data parallel GPT-2 on two ranks."""
    words = [f"--{k.replace('_', '-')}={v}" for k, v in CASE.items()]
    done = subprocess.run(
        [sys.executable, "-m", "fusescope", "parallel", "gpt2", *words, "--device=cpu", "--json", "--weak"]
        + ["--layout=tp2,pp2", "--budget=0.05", "--micro-batches=2", "--trace=tp2"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_answer_of_two_ranks(answer):
    jsonschema.validate(answer, schema("parallel"))
    records = {(r["impl"], r["case"]["batch"]): r for r in answer["records"]}
    assert set(records) == {("sdpa", 4), ("sdpa-tp2", 4), ("sdpa-pp2", 4), ("sdpa-tp2", 8), ("sdpa-pp2", 8)}
    for (impl, batch), r in records.items():
        own = r["extra"]["parallel"]
        assert (
            r["status"] == "ok" and r["time_ms"]["eager"]["median"] > 0 and r["conditions"]["compared"] == 2
        )
        assert (r["speedup"] is not None) == (batch == 4)
        assert own["scaling"] == ("strong" if batch == 4 else "weak")
        assert len(own["weights_bytes"]) == own["ranks"] == (1 if impl == "sdpa" else 2)
        if own["ranks"] > 1:
            assert 0 < own["communication"]["share"] < 1 and 0 <= own["communication"]["hidden"] <= 1
    assert {(s["scheme"], s["scaling"]) for s in answer["scaling"]} == {
        (scheme, scaling) for scheme in ("tp", "pp") for scaling in ("strong", "weak")
    }
    assert all("too few" in s["fit"]["note"] for s in answer["scaling"])
    assert {link["collective"] for link in answer["links"]["links"]} == {
        "all_reduce",
        "all_gather",
        "send_recv",
    }
    assert {(p["tp"], p["batch"]) for p in answer["probes"][0]["points"]} >= {(1, 4), (2, 2)}


def test_the_traces_of_its_ranks_are_one_profile(answer, capsys):
    path = library.find(answer["run"])
    assert not (path / "artifacts" / TRACES).exists()
    assert cli.main(["ranks", answer["run"], "--pair=0,1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, schema("ranks"))
    found = {c["name"]: c for c in said["collectives"]}
    calls, layers = 3, CASE["layers"]
    assert found["allreduce"]["collectives"] == calls * 2 * layers, "two per layer and call"
    assert found["barrier"]["collectives"] == calls and len(said["ranks"]) == 2
    assert said["pair"]["kernels"] and "calls of sdpa-tp2" in said["notes"]


def test_a_prediction_from_the_run(answer, capsys):
    assert cli.main(["predict-scaling", answer["run"], "--devices", "2,4,1024", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, schema("predict-scaling"))
    assert {p["ranks"] for p in said["layouts"]} == {2, 4}, "the model has no layout of 1,024 ranks"
    measured = {
        r["impl"] + str(r["case"]["batch"]): r["time_ms"]["eager"]["median"] for r in answer["records"]
    }
    beside = {c["impl"] + str(c["case"]["batch"]): c for c in said["compared"]}
    assert set(beside) == set(measured) - {"sdpa4"}
    for name, c in beside.items():
        assert c["measured_ms"] == measured[name]
        assert c["error"] == pytest.approx(c["predicted_ms"] / c["measured_ms"] - 1)
    assert cli.main(["predict-scaling", answer["run"], "--latency-us", "5"]) == 2
    assert "together" in capsys.readouterr().err


def living_ranks():
    """{rank: process id} of the ranks that runs of this test's folder have."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"fusescope.jobs.parallel.rank" not in (process / "cmdline").read_bytes():
                continue
            words = (process / "environ").read_bytes().split(b"\0")
            if f"FUSESCOPE_PROFILES={paths.profiles()}".encode() not in words:
                continue
            rank = next(w for w in words if w.startswith(b"RANK="))
            found[int(rank[5:])] = int(process.name)
        except (OSError, StopIteration):
            continue
    return found


def until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    pytest.fail(f"waited in vain for {what}")


@pytest.mark.long
def test_a_rank_that_dies_costs_one_record_and_leaves_nothing():
    spec = {"op": "model:gpt2", "impls": ["sdpa", "sdpa-dp2"], "cases": [CASE], "device": "cpu"}
    # precision that is never reached: it samples until it is stopped
    spec |= {"links": False, "probes": False, "budget_s": 3600.0, "precision": 1e-9, "min_samples": 10**6}
    run_id = submit.submit("parallel", spec)
    path = library.find(run_id)
    sampling = lambda: "sampling" in folder.read(path).progress.message  # noqa: E731
    until(lambda: sampling() or not folder.read(path).live, "the first samples")
    os.kill(living_ranks()[1], signal.SIGKILL)
    until(lambda: folder.records(path) or not folder.read(path).live, "the record of what died")
    assert folder.records(path), folder.read(path).reason
    (record,) = folder.records(path)
    assert (record.impl, record.status) == ("sdpa", "crashed")
    assert "rank" in record.reason and len(record.reason) < 200
    submit.cancel(run_id)
    assert submit.wait(run_id, PATIENCE_S).status == "cancelled"
    until(lambda: not living_ranks(), "the end of every rank")


def test_the_rank_that_was_killed_is_named_also_where_another_failed_sooner(tmp_path):
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    def failed(**codes):
        ranks = {int(name[1:]): code for name, code in codes.items()}
        failures = {r: ProcessFailure(r, 1, code, str(tmp_path / "none")) for r, code in ranks.items()}
        for n, failure in enumerate(failures.values()):
            failure.timestamp = n  # in the order given
        return launch._sentence(ChildFailedError("ranks", failures))

    assert failed(r0=1, r1=-signal.SIGKILL) == "rank 1 was killed by signal 9"
    assert failed(r1=1, r0=-signal.SIGABRT) == "rank 1 ended with exit code 1"
    assert failed(r1=3, r0=1) == "rank 1 ended with exit code 3"


@pytest.mark.parametrize(
    "change, words",
    [
        ({"impls": ["sdpa", "sdpa-tp1024"]}, "tensor parallel degree 1024"),
        ({"impls": ["sdpa", "sdpa-dp512"], "cases": [CASE | {"batch": 512}]}, "need 512 ranks from cpu on"),
        ({"impls": ["sdpa", "sdpa-pp3"]}, "2 layers, which 3 pipeline stages"),
        ({"impls": ["eager"]}, "an implementation is sdpa, fusescope or fused"),
        ({"impls": ["sdpa-tp2"], "baseline": "sdpa-tp2"}, "the baseline runs on one device"),
        ({"op": "model:t5-small", "cases": [{}]}, "has no way to be divided"),
        ({"processes": 3}, "one set of processes"),
        ({"trace": "sdpa"}, "trace is a layout of several ranks, one of sdpa-tp2, not sdpa"),
        ({"trace": "sdpa-pp2"}, "one of sdpa-tp2, not sdpa-pp2"),
        ({"weak": True, "micro_batches": 0}, "micro_batches"),
    ],
)
def test_bad_specifications_are_refused_before_anything_starts(change, words):
    spec = {"op": "model:gpt2", "impls": ["sdpa", "sdpa-tp2"], "cases": [CASE], "device": "cpu"}
    with pytest.raises(ValueError, match=words):
        submit.validate("parallel", spec | change)
