"""Drawing every page, every view and an operator of each kind imports neither torch nor transformers and maps
no CUDA driver."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DRAW = Path(__file__).with_name("draw_everything.py")
PLAIN = {"STREAMLIT_LOGGER_LEVEL": "error", "STREAMLIT_CLIENT_SHOW_ERROR_DETAILS": "full"}


@pytest.mark.long
def test_the_dashboard_never_imports_torch_and_holds_no_cuda_context(tmp_path):
    """The time-outs are for what hangs: ten seconds of work may take many times that on a busy machine."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    own = {"FUSESCOPE_PROFILES": str(profiles), "FUSESCOPE_RUNTIME": str(tmp_path / "runtime")}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(DRAW), str(profiles)],
        capture_output=True,
        text=True,
        timeout=800,
        env=os.environ | own | PLAIN,
        cwd=DRAW.parents[2],
    )
    how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
    lines = [line for line in done.stderr.splitlines() if "ScriptRunContext" not in line]
    told = "\n".join([how, done.stdout, *lines[-40:]])
    assert done.returncode == 0 and done.stdout.endswith("drawn\n"), told
