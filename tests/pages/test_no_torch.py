"""Drawing every page, every view and every operator imports neither torch nor transformers and maps no CUDA
driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
sys.path[:0] = [{root!r}, {here!r}]
import drawn_page, folders
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

drawn_page.look_up_once(setattr)
few = folders.few(Path({profiles!r}))
from fusescope import ops
from pages._ui.answer import views
from pages._ui.app import frame
from pages._ui.models import views as models_views
from pages._ui.profiler.views import choice as profiler_views

def draw(page, **query):
    at = AppTest.from_file({app!r}, default_timeout=120)
    if page != "app":
        at.switch_page("pages/" + page + ".py")
    for key, value in query.items():
        at.query_params[key] = value
    at.run()
    assert not at.exception, (page, query, [e.message for e in at.exception])

for page in frame.pages():
    draw(page)
for view in views.NAMES:
    draw("runs", run=few["point"].id, view=view)
for op in ops.names():
    draw("kernels", op=op)
for view in models_views.NAMES:
    draw("models", view=view)
draw("masks", view="Scores", seq="64")
for part in ("Sweep", "Cost model", "Search"):
    draw("fusion", part=part)
import profiles_on_disk

traced = profiles_on_disk.trace(Path({profiles!r}), "20261120-120000-trace-aaaaaa").name
for view in profiler_views.NAMES:
    draw("profiler", run=traced, view=view)
draw("profiler", do="import")
draw("profiler", do="now", op="model:bert-base")
draw("runs", compare=few["point"].id + "," + few["recorded"].id)
loaded = sorted({{m.partition(".")[0] for m in sys.modules}} & {{"torch", "transformers", "triton"}})
assert not loaded, loaded
maps = open("/proc/self/maps").read()
assert "libcuda.so" not in maps and "libcudart" not in maps, "a CUDA library is mapped"
print("drawn")
"""


def test_the_dashboard_never_imports_torch_and_holds_no_cuda_context(tmp_path):
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    script = SCRIPT.format(
        root=str(ROOT), here=str(Path(__file__).parent), app=str(ROOT / "app.py"), profiles=str(profiles)
    )
    env = os.environ | {"FUSESCOPE_PROFILES": str(profiles), "FUSESCOPE_RUNTIME": str(tmp_path / "runtime")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, env=env, cwd=ROOT
    )
    assert done.returncode == 0 and "drawn" in done.stdout, done.stderr[-3000:]
