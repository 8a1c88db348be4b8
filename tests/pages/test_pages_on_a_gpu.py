"""The app on a machine with a GPU: every page, jobs started by their buttons and run by real workers, and
what pages say of the device, idle, shared and at its power cap. Nothing is faked."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import pytest
from drawn_page import calm, query, said
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from fusescope.charts import sentences
from fusescope.core.machine import environment, nvml
from fusescope.core.paths import ROOT
from fusescope.jobs import submit
from fusescope.jobs.kinds import sanitize
from fusescope.jobs.profiled import outside_tool
from fusescope.store import folder, library
from pages._ui.app import frame

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
DEADLINE_S = 120.0
OURS = "v2_vectorised"
ADD = {"op": "add", "n": "1024", "impl": f"eager,{OURS}", "cache": "warm", "within": "5.0", "device": DEVICE}
LOAD = """
import time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.monotonic() + 100
while time.monotonic() < end:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
    print("busy", flush=True)
"""


@pytest.fixture(autouse=True, scope="module")
def _slow_answers_once():
    """In place of the conftest's: the device, its load and the doctor answer for themselves, each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", list)
        yield


@pytest.fixture(autouse=True, scope="module")
def home(tmp_path_factory):
    """One profiles folder for the file, with the recorded runs: jobs of one test are seen by the next."""
    path = tmp_path_factory.mktemp("on_a_gpu")
    (path / "recorded").symlink_to(ROOT / "profiles" / "recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUSESCOPE_PROFILES", str(path))
        yield path


@pytest.fixture(scope="module")
def compared():
    """The comparison that the Kernels page's Run button starts: (the page once it has ended, its run)."""
    at = draw("kernels", **ADD)
    return at, started(at, "kernels/run", "kernels/run_id")


@pytest.fixture(scope="module")
def shared():
    """Another process that keeps the GPU busy; for the last tests of the file, at whose end it is stopped."""
    process = subprocess.Popen([sys.executable, "-c", LOAD], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        if process.stdout.readline() != b"busy\n":
            pytest.fail(f"the other process ended: {process.communicate()[1].decode()[-2000:]}")
        yield process
    finally:
        process.kill()
        process.wait()


def draw(page: str, /, live: bool = False, **settings: str) -> AppTest:
    """The page after its first run, which must not have raised; ``live``: with the live panel open."""
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    if page != "app":
        at.switch_page(f"pages/{page}.py")
    for key, value in settings.items():
        at.query_params[key] = value
    if live:
        at.session_state["device/live"] = True
    calm(at.run())
    assert "not taken" not in said(at.warning), said(at.warning)
    return at


def html(at: AppTest) -> str:
    return "\n".join(e.proto.body for e in at.get("html"))


def seen(at: AppTest) -> str:
    """What the page says, for the message of a test that failed."""
    return "\n".join(filter(None, map(said, (at.error, at.warning, at.info, at.markdown, at.caption))))


def press(at: AppTest, key: str) -> None:
    button = at.button(key=key)
    assert not button.disabled, f"{key} is disabled: {button.help}\n{seen(at)}"
    button.click()
    calm(at.run())


def kept(at: AppTest, key: str):
    """What the session keeps under ``key``; its state has no get()."""
    with contextlib.suppress(KeyError):
        return at.session_state[key]
    return None


def started(at: AppTest, key: str, shown: str):
    """Press the button; the run that the page shows then under ``shown``, done, and the page drawn again."""
    before = kept(at, shown)
    press(at, key)
    run_id = kept(at, shown)
    assert run_id and run_id != before, f"{key} started nothing:\n{seen(at)}"
    run = ended(run_id)
    calm(at.run())
    return run


def ended(run_id: str):
    """The run, done; else what it says and the end of its log."""
    run = submit.wait(run_id, DEADLINE_S)
    path = library.find(run_id)
    if run.status != "done":
        if run.live:
            submit.cancel(run_id)
        log = (path / "log.txt").read_text(errors="replace")[-4000:] if (path / "log.txt").exists() else ""
        pytest.fail(f"{run_id} is {run.status}: {run.reason}; {run.progress.message}\n{log}", pytrace=False)
    return run


def records_of(run):
    """Its records, each ok and of the GPU."""
    records = folder.records(library.find(run.id))
    assert records, f"{run.id} has no record"
    assert not [(r.impl, r.status, r.reason) for r in records if r.status != "ok"]
    assert run.spec["device"] == DEVICE and run.environment["device_name"] == name()
    return records


def name() -> str:
    gpu = environment.gpu_of(DEVICE)
    return gpu["name"] if gpu else environment.cpu_name()


def verdict_is_drawn(at: AppTest, records, baseline: str) -> None:
    sentence = sentences.result(records, baseline)
    assert sentence and sentence in said(at.markdown), (sentence, seen(at))


@pytest.mark.parametrize("page", list(frame.pages()))
def test_every_page_names_the_gpu(page):
    at = draw(page)
    assert f"<b>{name()}</b>" in html(at) and f" · {DEVICE}</span>" in html(at), html(at)[-2000:]
    if page != "scaling" or len(environment.devices()) > 2:  # its layouts are of two ranks and more
        assert not at.error, said(at.error)
    assert "throttled:" not in html(at)


def test_the_picker_offers_the_gpu_and_the_cpu():
    at = draw("kernels", op="add")
    picker = at.selectbox(key="device/widget")
    assert [o.partition(" · ")[0] for o in picker.options][:1] == [DEVICE], picker.options
    assert picker.options[-1].startswith("cpu · ") and picker.value == DEVICE
    assert name().removeprefix("NVIDIA ")[:24] in picker.options[0]
    picker.set_value("cpu")
    calm(at.run())
    assert query(at)["device"] == "cpu" and " · cpu</span>" in html(at)
    assert OURS not in at.multiselect[0].value, "a CUDA kernel is not offered on the CPU"


def test_the_build_page_compiles_for_this_gpu():
    arch = environment.collect(DEVICE)["arch"]
    if name().startswith(("NVIDIA H100", "NVIDIA H200")):
        assert arch == "sm_90a"
    at = draw("build")
    assert f"For CPU and {arch}:" in said(at.caption), seen(at)
    if at.button(key="build/family/add").disabled:
        assert at.button(key="build/family/add").label == "Built"
        return
    run = started(at, "build/family/add", "build/run")
    assert run.spec["archs"] == [arch] and run.spec["families"] == ["add"]


def test_a_comparison_from_its_page(compared):
    at, run = compared
    records = records_of(run)
    assert {r.impl for r in records} == {"eager", OURS}
    verdict_is_drawn(at, records, "eager")
    assert not at.error and query(at)["run"] == run.id
    assert all(r.conditions and r.conditions.sm_mhz for r in records), "the clock was read at each sample"


def test_a_model_from_its_page():
    sizes = {"batch": "1", "seq": "16", "layers": "1"}
    at = draw("models", model="bert-small", impl="eager,fused", within="5.0", device=DEVICE, **sizes)
    run = started(at, "models/run", "models/run_id")
    records = records_of(run)
    assert {r.impl for r in records} == {"eager", "fused"} and {r.case["batch"] for r in records} == {1}
    verdict_is_drawn(at, records, "eager")


def test_compute_sanitizer_from_its_button(compared):
    if sanitize.find_sanitizer() is None:
        pytest.skip("compute-sanitizer is not installed")
    at = draw("kernels", run=compared[1].id, view="Trace")
    at.selectbox(key="extras/impl").set_value(OURS)
    calm(at.run())
    press(at, "extras/sanitize")
    (found,), _ = library.runs(kind="sanitize", recorded=False)
    run = ended(found.id)
    calm(at.run())
    assert f"runs?run={run.id}" in said(at.markdown) and run.progress.message in said(at.caption), seen(at)
    opened = draw("runs", run=run.id)
    assert run.progress.message in seen(opened) and not opened.error, seen(opened)
    report = library.find(run.id) / "artifacts" / "sanitizer.txt"
    assert "ERROR SUMMARY: 0 errors" in report.read_text(), run.progress.message


def test_nsight_compute_from_its_button():
    if outside_tool.find("ncu") is None:
        pytest.skip("ncu is not installed")
    settings = {"op": "add", "n": "1024", "impl": OURS, "tool": "Nsight Compute", "metrics": "light"}
    at = draw("profiler", do="now", device=DEVICE, **settings)
    run = started(at, "profiler/go", "profiler/run")
    assert run.kind == "ncu" and run.spec["impl"] == OURS and not at.error, seen(at)
    opened = draw("profiler", run=run.id, view="Nsight Compute")
    assert opened.get("plotly_chart") and not opened.error, seen(opened)


def test_the_live_panel_has_what_the_gpu_gives():
    text = html(draw("app", live=True))
    for row, unit in LIVE.items():
        assert f"<td>{row}</td>" in text and unit in text.partition(f"<td>{row}</td>")[2][:80], (row, text)
    assert "CPU load" in text


LIVE = {
    "GPU utilisation": " %",
    "GPU memory": "GiB",
    "SM clock": " MHz",
    "Memory clock": " MHz",
    "Power": " W",
    "Temperature": " °C",
}


def test_the_live_panel_follows_another_process(shared):
    at, end = draw("app", live=True), time.monotonic() + 15
    while "<td>GPU utilisation</td>" in html(at) and time.monotonic() < end:
        share = html(at).partition("<td>GPU utilisation</td>")[2].partition(">")[2].partition(" %")[0]
        if int(share) >= 50:
            return
        time.sleep(0.5)
        calm(at.run())
    pytest.fail(f"no utilisation of 50 % beside a process of matrix products: {html(at)}")


def test_a_gpu_at_its_power_cap_is_no_alarm(shared):
    at, end, met = draw("app", live=True), time.monotonic() + 20, set()
    reader = nvml.Reader(environment.gpu_of(DEVICE)["uuid"])
    while time.monotonic() < end:
        reasons = reader.reasons() or 0
        met.update(nvml.named(reasons))
        if nvml.faults(reasons):
            pytest.skip(f"this GPU is throttled for another reason: {nvml.faults(reasons)}")
        assert "throttled:" not in html(at)
        if "power cap" in html(at).partition("<td>Clock limited by</td>")[2][:80]:
            assert not at.error and not at.warning, seen(at)
            return
        calm(at.run())
    pytest.skip(f"the power cap was not reached; reasons met: {sorted(met) or 'none'}")


def test_another_process_is_named_before_run_and_over_the_result(shared):
    listed = environment.gpu_of(DEVICE)["processes"]
    at = draw("kernels", **ADD)
    before = said(at.warning)
    run = started(at, "kernels/run", "kernels/run_id")
    records = folder.records(library.find(run.id))
    if shared.pid not in [p["pid"] for p in listed]:
        assert not [r.conditions.busy for r in records if r.conditions and r.conditions.busy]
        pytest.skip(f"NVML does not list process {shared.pid} of this container; it lists {listed}")
    assert f"(PID {shared.pid}) uses this GPU and will disturb the times" in before, seen(at)
    assert "The machine was busy while this was measured" in said(at.warning), seen(at)
    assert [b for b in at.button if b.label.startswith("Wait for an idle machine")]
