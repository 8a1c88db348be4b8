"""The Profiler page: every view of every kind of profile, state in the URL, hostile names as text, files
refused in a sentence."""

import json

import profiles_on_disk as disk
import pytest
from drawn_page import calm, everything, figures, query, said, tables
from profiles_on_disk import NCU, OTHER, TRACE

from fusescope.analysis.profile.diff import Difference
from fusescope.charts import escape
from fusescope.charts.profile import changes, telemetry, timeline
from fusescope.jobs import submit
from fusescope.store import library, profile
from pages._ui.profiler import page
from pages._ui.profiler.views import choice


@pytest.fixture
def there(profiles):
    return disk.three(profiles)


@pytest.mark.slow
@pytest.mark.parametrize("view", choice.NAMES)
@pytest.mark.parametrize("run", [TRACE, NCU])
def test_every_view_draws_and_its_state_is_in_the_url(draw, there, run, view):
    at = draw("profiler", run=run, view=view)
    assert not at.error and not at.warning
    again = query(calm(at.run()))
    assert again["run"] == run and again.get("view", "Overview") == view
    assert disk.EVIL not in everything(at) and disk.EVIL not in figures(at)


@pytest.mark.long
@pytest.mark.parametrize(
    "view", ["Overview", "Time breakdown", "Timeline", "Occupancy", "Memory", "Device", "Compare"]
)
def test_a_browser_draws_each_chart_once(draw, there, view):
    """Streamlit hands plotly a copy of every figure right after the first drawing; what plotly takes for new
    in it is drawn again."""
    for chart in draw("profiler", run=TRACE, view=view).get("plotly_chart"):
        figure = json.loads(chart.proto.spec)
        assert figure["layout"]["datarevision"] and "template" not in figure["layout"]
        flat = [
            k
            for trace in figure["data"]
            for k, v in trace.items()
            if isinstance(v, dict) and "bdata" in v and "shape" not in v
        ]
        assert not flat, "a flat NumPy array: plotly compares lists only"


@pytest.mark.slow
def test_a_hostile_name_is_plain_text_everywhere(draw, there):
    escaped = "&lt;img src=x onerror=alert(1)&gt;"
    for view in ("Time breakdown", "Timeline", "Nsight Compute"):
        assert escaped in figures(draw("profiler", run=TRACE, view=view, **{"with": NCU})), view
    at = draw("profiler", run=TRACE, view="Tables")
    assert disk.EVIL in [row["name"] for row in tables(at)[0]], "the table shows it as the text it is"
    assert escape.plain("a<b>&\nc") == "a&lt;b&gt;&amp; c" and len(escape.plain("x" * 500)) <= 91
    assert escape.text_on("#FFFFFF") == "#14181D" and escape.text_on("#0072B2") == "#FFFFFF"
    assert (
        escape.label("void at::native::k<4, F<int>>(int)") == "k" and escape.label("aten::mm") == "aten::mm"
    )


def test_the_overview_says_what_limits_it_with_its_numbers(draw, there):
    at = draw("profiler", run=TRACE)
    words = said(at.markdown)
    assert at.subheader[0].value == "Launch-bound" and "idle" in words
    table = at.get("html")
    assert any("3 by external id" in e.proto.body or "6 by external id" in e.proto.body for e in table)
    metrics = {m.label: m.value for m in at.metric}
    assert metrics["kernels"] == "6" and metrics["memcpy/memset"] == "3"


def test_without_anything_one_button_and_a_recording(draw, profiles):
    at = draw("profiler")
    assert [b.label for b in at.button if b.key == "profiler/first"] == ["Profile attention"] and not at.error
    disk.trace(profiles / "recorded", TRACE)
    at = draw("profiler")
    assert "recorded on NVIDIA H200" in at.selectbox[0].options[0] and at.get("plotly_chart")


def test_another_profile_is_chosen_and_a_stale_line_chooses_nothing(draw, there, monkeypatch):
    at = draw("profiler", run=TRACE, view="Tables")
    picker = at.selectbox(key="profiler/run/widget")
    picker.set_value(OTHER)
    assert query(calm(at.run()))["run"] == OTHER
    kept = {
        "profiler/run": OTHER,
        "widget": "a line of before, as a browser sends it whose page is not drawn yet",
    }
    monkeypatch.setattr(page.st, "session_state", kept)
    page._choose("widget", [TRACE, OTHER])
    assert kept["profiler/run"] == OTHER


@pytest.mark.slow
def test_one_press_profiles_and_the_page_follows_the_job(draw, profiles, monkeypatch):
    asked = []
    monkeypatch.setattr(submit, "submit", lambda kind, spec, title="": asked.append((kind, spec)) or OTHER)
    disk.trace(profiles / "recorded", TRACE)
    at = draw("profiler")
    disk.trace(profiles, OTHER)
    at.button(key="profiler/first").click()
    assert query(calm(at.run()))["run"] == OTHER
    kind, spec = asked[0]
    assert kind == "trace" and submit.validate(kind, spec)["op"] == "attention"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["no-such-run", "../../etc/passwd"])
def test_a_run_that_is_not_there_is_a_sentence(draw, there, name):
    assert name in said(draw("profiler", run=name).warning)


def test_tables_are_paged_sorted_and_searched_on_the_server(draw, there):
    at = draw("profiler", run=TRACE, view="Tables", table="kernels", order="dur_ns", rows="25", find="IMG")
    shown = tables(at)[0]
    assert [(row["name"], row["time (µs)"]) for row in shown] == [(disk.EVIL, "60.0")] * 3
    assert query(at)["table"] == "kernels" and query(at)["find"] == "IMG"
    data, total = profile.page(library.find(TRACE), "kernels", "ts_ns", False, "", 2, 2)
    assert total == 6 and len(data) == 2 and data["ts_ns"].is_monotonic_increasing
    whole = b"".join(profile.csv(library.find(TRACE), "kernels")).decode()
    assert whole.count("\n") == 7 and disk.EVIL in whole and whole.startswith('"ts_ns"')
    empty = b"".join(profile.csv(library.find(TRACE), "counters")).decode()
    assert empty == '"ts_ns","name","series","value"\n'
    with pytest.raises(ValueError, match="ordered by"):
        profile.page(library.find(TRACE), "kernels", "nope")
    with pytest.raises(ValueError, match="1 to 1000"):
        profile.page(library.find(TRACE), "kernels", limit=5000)


@pytest.mark.slow
def test_the_time_line_counts_for_what_is_in_view_and_zooms(draw, there):
    at = draw("profiler", run=TRACE, view="Timeline")
    assert "every event" in figures(at) and "GPU 0 stream 7" in figures(at)
    at.button(key="profiler/Zoom in").click()
    span = query(calm(at.run()))["span"]
    first, last = map(int, span.split("-"))
    assert 0 < first < last
    assert query(draw("profiler", run=TRACE, view="Timeline", span=span))["span"] == span
    assert "span" in said(draw("profiler", run=TRACE, view="Timeline", span="5-1").warning)
    at.button(key="profiler/Whole").click()
    assert "span" not in query(calm(at.run()))
    at.selectbox(key="profiler/step").set_value("step 1")
    low, high = map(int, query(calm(at.run()))["span"].split("-"))
    assert high - low == 900_000, "the step in ns"
    place = 7_000_000
    shown = timeline.nanoseconds(place / 1e3, 0, 1_000_000, 0)
    assert shown == place, "a place on the axis in µs is that place in ns"


def test_occupancy_stands_by_three_names_and_the_sliders_start_from_the_kernel(draw, there):
    at = draw("profiler", run=TRACE, view="Occupancy", **{"with": NCU})
    row = next(row for row in tables(at)[0] if row["kernel"] == disk.EVIL)
    assert (
        row["theoretical (%)"] == "50.0" and row["measured (%)"] == "14.5" and row["limiter"] == "registers"
    )
    assert row["grid-limited (%)"] == "6.25", "132 blocks of 4 warps on 132 SMs, each with room for 64"
    alone = draw("profiler", run=TRACE, view="Occupancy", **{"with": "none"})
    assert {row["measured (%)"] for row in tables(alone)[0]} == {"n/a"}
    assert "title='only Nsight Compute measures it" in "".join(e.proto.body for e in alone.get("html"))
    assert (
        at.session_state["profiler/occ/registers"] == 64 and at.session_state["profiler/occ/dynamic"] == 16384
    )
    assert "**50.0 %** theoretical" in "\n".join(m.value for m in at.markdown)
    at.slider(key="profiler/occ/registers").set_value(32)
    assert query(calm(at.run()))["registers"] == "32"


def test_the_overview_of_a_report_names_its_longest_launches(draw, there):
    launches = tables(draw("profiler", run=NCU))[0]
    assert [row["kernel"] for row in launches] == ["gemm", disk.EVIL] and {
        row["measured occupancy (%)"] for row in launches
    } == {"14.5"}


def test_counters_of_one_layer_are_joined_with_the_trace_of_the_whole_model_but_not_its_bytes(draw, profiles):
    case = {
        "batch": 8,
        "seq": 128,
        "lengths": "fixed",
        "layers": 12,
        "heads": 12,
        "head_dim": 64,
        "mask": "full",
    }
    model = {"op": "model:bert-base", "impl": "sdpa", "case": case, "dtype": "float16", "device": "cuda:0"}
    disk.trace(profiles, TRACE, model)
    disk.report(profiles, NCU, model | {"case": case | {"layers": 1}})
    disk.report(profiles, NCU.replace("bbbbbb", "dddddd"), model | {"impl": "eager"})
    at = draw("profiler", run=TRACE, view="Occupancy")
    assert {row["measured (%)"] for row in tables(at)[0]} == {"14.5"}
    at = draw("profiler", run=TRACE, view="Roofline")
    assert "is of different work" in said(at.caption) and "actual" not in figures(at)


def test_the_report_is_joined_to_the_traces_launches(draw, there):
    at = draw("profiler", run=NCU, view="Nsight Compute", **{"with": TRACE})
    assert [(row["trace time (µs)"], row["tensor pipe (%)"]) for row in tables(at)[0]] == [
        ("30.0", "11.0"),
        ("60.0", "11.0"),
    ]
    text = figures(at)
    assert "long scoreboard" in text and "tensor pipe" in text and "high utilisation from 60" in text
    assert "2 of 2 launches joined" in said(at.caption)


def test_the_roofline_has_requested_and_moved_bytes(draw, there):
    at = draw("profiler", run=NCU, view="Roofline", **{"with": TRACE})
    rows = at.dataframe[0].value.set_index("traffic")
    assert (
        rows.loc["actual", "MiB"] == pytest.approx(2 * 66_384 / 2**20)
        and rows.loc["minimum", "time (µs)"] == 90
    )
    assert "data sheet of H200 SXM" in figures(at) and "minimum" in figures(at)
    at.text_input(key=f"profiler/{NCU}/mhz/typed").set_value("877")
    assert "898 GB/s" in said(calm(at.run()).markdown), "877 MHz × 4096 bit × 2"


def test_memory_and_prediction_share_an_axis(draw, there):
    at = draw("profiler", run=TRACE, view="Memory")
    text = figures(at)
    assert "allocated, cuda:0" in text and "NVML, whole device" in text and "predicted operands" in text
    peaks = at.dataframe[0].value.set_index("what")["size"]
    assert (
        peaks["largest allocated, cuda:0"] == "12.0 KiB" and peaks["largest NVML, whole device"] == "3.00 GiB"
    )


def test_throttling_is_a_band(draw, there):
    at = draw("profiler", run=TRACE, view="Device")
    assert "throttled: power cap" in figures(at) and "30.0 %" in [m.value for m in at.metric]
    assert telemetry.bands({"throttled": [None, "a", "a", "b", None, "c"]}) == [
        (1, 3, "a"),
        (3, 4, "b"),
        (5, 5, "c"),
    ]
    assert "holds no samples" in json.dumps(telemetry.panels({"ts_ns": []}).to_plotly_json())


def test_two_profiles_are_compared_in_time_and_ratio(draw, there):
    at = draw("profiler", run=OTHER, view="Compare", against=TRACE)
    assert {m.label: m.value for m in at.metric}["kernels alone"] == "▼ 2.00×"
    assert "A step of b" in at.subheader[0].value or "Same step time" in at.subheader[0].value
    text = figures(at)
    assert "▼ gemm" in text and "+ other" in text and "gone" in text
    at = draw("profiler", run=OTHER, view="Compare", against=TRACE, **{"as": "speed-up", "by": "operator"})
    assert query(at)["as"] == "speed-up" and "2.00× slower" in figures(at)
    assert "No change" in json.dumps(changes.bars([], "kernel").to_plotly_json())
    slower = Difference("a", "", "slower", 1e3, 1.5e3, 500, 1 / 1.5, 1, 1)
    assert changes.bars([slower], "operator", relative=True).data[0].base == 1


def test_a_trace_without_tables_offers_to_make_them(draw, profiles, monkeypatch):
    path = disk.trace(profiles, TRACE)
    for file in [*(path / "artifacts").glob("*.parquet"), path / "artifacts" / "summary.json"]:
        file.unlink()
    asked = []
    monkeypatch.setattr(submit, "submit", lambda kind, spec, title="": asked.append((kind, spec)) or TRACE)
    at = draw("profiler", run=TRACE)
    at.button(key="profiler/tables").click()
    calm(at.run())
    assert asked == [("import", {"file": str(path / "artifacts" / "trace.json.gz")})]


def test_a_summary_of_a_newer_version_is_a_sentence(draw, there):
    file = there / "artifacts" / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": 99}))
    assert "newer version" in said(draw("profiler", run=TRACE).error)


def test_wrong_files_are_refused_before_anything_starts(draw, profiles, tmp_path):
    file = tmp_path / "trace.json"
    for text, says in (("", "is empty"), ("<html>", "none of the profiles"), (None, "no file")):
        if text is not None:
            file.write_text(text)
        at = draw("profiler", do="import", file=str(file if text is not None else tmp_path / "gone.json"))
        if text is not None:
            calm(at.button(key="profiler/file/confirm").click().run())
        at.button(key="profiler/import").click()
        assert says in said(calm(at.run()).error)
    assert not [p for p in profiles.iterdir() if p.name[0] == "2"]


@pytest.mark.parametrize("op", ["attention", "softmax", "model:bert-small"])
def test_what_can_be_profiled_now_says_its_command(draw, profiles, op):
    at = draw("profiler", do="now", op=op)
    assert not at.error
    command = said(at.code)
    assert f"profile {op.removeprefix('model:')} --impl" in command and "--device cpu" in command
    assert not next(b for b in at.button if b.key == "profiler/go").disabled


def test_a_tool_that_cannot_run_says_why(draw, profiles):
    at = draw("profiler", do="now", tool="Nsight Compute")
    assert next(b for b in at.button if b.key == "profiler/go").disabled and "CUDA" in said(at.warning)


def test_metrics_of_ones_own(draw, profiles):
    at = draw(
        "profiler",
        do="now",
        tool="Nsight Compute",
        metrics="custom",
        names="sm__warps_active.avg, dram__bytes_read.sum",
    )
    assert (
        "--metrics sm__warps_active.avg,dram__bytes_read.sum" in said(at.code)
        and query(at)["metrics"] == "custom"
    )


@pytest.mark.slow
def test_the_verdict_uses_counters_of_the_same_work_and_ceilings(draw, profiles):
    """A busy device: by its report of the same spec memory-bound; without one by FLOP per byte against the
    data sheet."""
    disk.trace(profiles, TRACE, scale=9.0, names=("k",))  # 270 of every 1000 µs by one kernel, then idle
    path = library.find(TRACE) / "artifacts" / "summary.json"
    summary = json.loads(path.read_text())
    summary["devices"][0]["busy_ns"] = summary["devices"][0]["last_ns"] - summary["devices"][0]["first_ns"]
    path.write_text(json.dumps(summary | {"idle": {}}))
    at = draw("profiler", run=TRACE)
    words = said(at.markdown)
    assert (
        at.subheader[0].value == "Latency-bound"
        and "FLOP per byte, and the device's ridge is at" in words
        and "the kernels reach 0.0" in words
    )
    disk.report(profiles, NCU)
    at = draw("profiler", run=TRACE)
    assert at.subheader[
        0
    ].value == "Memory-bound" and "memory 75 % of speed of light over 2 launches" in said(at.markdown)


def test_a_run_with_a_profile_opens_in_the_profiler(draw, there):
    at = draw("runs", run=TRACE)
    assert any(b.key == "run/profiler" for b in at.button) and not at.error


def test_a_launch_bound_profile_says_what_to_do_and_links_there(draw, there):
    at = draw("profiler", run=TRACE)
    words = " ".join(m.value for m in at.markdown)
    assert "What to do" in words and "Capture the step in a CUDA graph" in words and "at most" in words
    at.button(key="profiler/advice/0").click().run()
    assert query(at)["view"] == "Timeline"


@pytest.mark.slow
def test_a_pinned_baseline_stays_and_shows_every_figure_against_it(draw, there):
    at = draw("profiler", run=TRACE)
    at.button(key="profiler/pin").click().run()
    assert query(at)["baseline"] == TRACE
    at = draw("profiler", run=OTHER, baseline=TRACE)
    words = " ".join(m.value for m in at.markdown)
    assert "Against the baseline" in words
    at.button(key="profiler/unpin").click().run()
    assert "baseline" not in query(at)


def test_a_failed_import_is_not_selected_and_says_why(draw, there, profiles):
    path = disk.trace(profiles, "20261120-140000-import-cccccc", kind="import")
    run = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(run | {"status": "failed", "reason": "t.json is empty"}))
    for left in (path / "artifacts").iterdir():
        left.unlink()
    at = draw("profiler", run=path.name)
    assert "was not imported" in at.error[0].value and "t.json is empty" in at.error[0].value
    assert query(at)["run"] != path.name and at.subheader[0].value == "Launch-bound"
    assert "Below is another profile" in said(at.caption), "it was taken for the file just opened"
    assert at.run().error, "the next drawing showed it without a remark"
    shown = query(at)["run"]
    at.selectbox(key="profiler/run/widget").set_value(TRACE if shown != TRACE else OTHER).run()
    assert not at.error and "another profile" not in said(at.caption)
