"""A job whose workers SLURM starts, end to end; where a controller of SLURM answers and dask-jobqueue is
installed. Where FUSESCOPE_SLURM names a file of settings, with these."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from fusescope.jobs import submit
from fusescope.jobs.cluster import certificates, slurm
from fusescope.store import folder, library

PATIENCE_S = 300
CASES = [{"rows": 8 * n, "cols": 64} for n in range(1, 7)]


def answers() -> bool:
    """Whether a controller does; it is asked once."""
    if shutil.which("scontrol") is None:
        return False
    try:
        done = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return False
    return " is UP" in done.stdout


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not answers(), reason="no controller of SLURM answers here (scontrol ping)"),
]


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """A comparison for two workers, whose jobs have a name of their own."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is an extra of clusters with SLURM")
    given = os.environ.get(slurm.VARIABLE)
    file = tmp_path / "slurm.toml"
    text = Path(given).read_text() if given else 'cores = 1\nmemory = "2GB"\ninterface = "lo"\n'
    kept = [line for line in text.splitlines() if line.split("=")[0].strip() not in ("workers", "directives")]
    kept += ["workers = 2", f'directives = ["--comment={tmp_path.name}"]', f'logs = "{tmp_path}"']
    file.write_text("\n".join(kept))
    certificates.make(tmp_path / "tls")
    monkeypatch.setenv(slurm.VARIABLE, str(file))
    monkeypatch.setenv(certificates.VARIABLE, str(tmp_path / "tls"))
    own = {"op": "softmax", "impls": ["eager", "cpu"], "baseline": "eager", "cases": CASES}
    return own | {"dtype": "float32", "device": "cpu", "budget_s": 0.05, "cluster": "slurm"}


def jobs(tmp_path) -> list[str]:
    """The jobs of a test that wait or run."""
    asked = ["squeue", "--noheader", "--format=%i %k"]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split()[0] for line in lines if line.split()[-1] == tmp_path.name]


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.2)
    return found


def test_workers_of_slurm_measure_every_case_once_though_one_is_cancelled(spec, tmp_path):
    run = submit.submit("bench", spec)
    path = library.find(run)
    until(lambda: len(folder.records(path)) >= 2)
    subprocess.run(["scancel", jobs(tmp_path)[0]], check=True)
    ended, records = submit.wait(run, PATIENCE_S), folder.records(path)
    assert ended.status == "done", ended.reason
    assert len(records) == len({(r.case_key, r.impl) for r in records}) == 2 * len(CASES)
    assert {r.status for r in records} == {"ok"} and all(r.conditions.host for r in records)
    assert until(lambda: not jobs(tmp_path)), "no job is left"


def test_a_cancelled_run_leaves_no_job_of_slurm(spec, tmp_path):
    run = submit.submit("bench", spec | {"budget_s": 5.0})
    until(lambda: jobs(tmp_path))
    submit.cancel(run)
    assert submit.wait(run, PATIENCE_S).status == "cancelled" and until(lambda: not jobs(tmp_path))
