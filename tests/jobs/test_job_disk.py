"""A disk that fills up under a running job fails that job with the reason, and no other."""

import os
import signal
import subprocess

import pytest
from jobs_tools import until, worker_pid

from fusescope.jobs import submit
from fusescope.store import folder, library


@pytest.mark.long
def test_a_job_on_a_full_disk_fails_clearly_and_goes_on_once_there_is_room(home, tmp_path, monkeypatch):
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tiny)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a tiny tmpfs cannot be mounted here (needs root): {mounted.stderr.strip()}")
    try:
        monkeypatch.setenv("FUSESCOPE_PROFILES", str(tiny))
        run_id = submit.submit("steps", {"steps": ["ok"] * 60, "pause_s": 0.02})
        path = library.find(run_id)
        until(lambda: len(folder.records(path)) >= 3, "a few records")
        os.kill(worker_pid(path), signal.SIGSTOP)  # or it would give its reserve to the filler
        filler = open(tiny / ".filler", "wb", buffering=0)
        with pytest.raises(OSError, match="No space"):
            while True:
                filler.write(b"x" * 4096)
        os.kill(worker_pid(path), signal.SIGCONT)
        run = submit.wait(run_id, 30)
        assert run.status == "failed" and "is full; free some space" in run.reason
        kept = len(folder.records(path))
        assert 3 <= kept < 60
        filler.truncate(0)
        submit.resume(run_id)
        assert submit.wait(run_id, 30).status == "done"
        assert [r.case["n"] for r in folder.records(path)] == list(range(60))
        filler.close()
    finally:
        subprocess.run(["umount", "-l", str(tiny)], check=True)
