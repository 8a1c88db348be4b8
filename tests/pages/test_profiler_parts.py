"""What stands behind the Profiler page: charts, predictions, uploads and routes."""

import json
import time
from itertools import pairwise

import pandas as pd
import profiles_on_disk as disk
import pytest
from profiles_on_disk import NCU, TRACE

from fusescope.analysis import memory_plan
from fusescope.charts import escape
from fusescope.charts.profile import memory_time, moved_bytes, ncu, steps, telemetry, time_breakdown, timeline
from fusescope.core.errors import RunError
from fusescope.jobs import submit
from fusescope.store import timeline as binned
from pages._ui.profiler import data, importing
from pages._ui.routes import perfetto


@pytest.fixture
def there(profiles):
    return disk.three(profiles)


def test_a_long_lane_is_drawn_in_bins(there):
    lane = binned.events(there, binned.lanes(there)["GPU 0 stream 7"])
    binned_view = binned.window(lane, bins=20, few=0)
    fig = timeline.lanes({"GPU 0 stream 7": binned_view}, binned_view["begin_ns"])
    assert fig.data[0].type == "heatmap" and "busy" in str(fig.data[0].customdata)
    assert binned_view["count"] == 9 and sum(binned_view["bins"]["count"]) == 9


def test_a_summary_is_kept_until_its_file_changes(there):
    file = there / "artifacts" / "summary.json"
    before = data.load(there.name).summary
    assert data.load(there.name).summary is before
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": 999}))
    with pytest.raises(RunError, match="newer version"):
        data.load(there.name)
    file.unlink()
    assert data.load(there.name).summary is None


def test_few_events_are_cells_each_until_the_next_begins():
    events = [(0, 400, "a"), (300, 100, "b"), (300, 200, "c"), (700, 0, "b"), (900, 500, "a")]
    view = {
        "begin_ns": 5000,
        "end_ns": 6000,
        "count": 5,
        "bins": {"busy": [1.0], "count": [5], "name": ["a"]},
    }
    view["events"] = [{"ts_ns": 5000 + ts, "dur_ns": ns, "name": name} for ts, ns, name in events]
    cells, names, handles = timeline.lanes({"GPU 0 stream 7": view}, 4000).data
    least = 1 / 0.7  # ns that a pixel of a narrow screen is
    assert [round(1e3 * x - 1000, 3) for x in cells.x] == [
        0,
        300,
        300,
        500,
        700,
        round(700 + least, 3),
        900,
        1000,
    ]
    colours = {escape.hue(name): n for n, name in enumerate("acb")}
    assert [colour for _, colour in cells.colorscale] == [colour for colour in colours for _ in "01"]
    assert cells.z[0][::2].tolist() == [0, 1, 2, 0] and all(z != z for z in cells.z[0][1::2]), (
        "nothing between them"
    )
    assert "<b>b</b><br>0 " in cells.customdata[0][4] and "1.7 µs" in cells.customdata[0][4], (
        "the hover has the true time"
    )
    assert [text.strip() for text in names.text] == ["a", "c", "a"] and handles.mode == "markers"


def test_layers_stand_in_their_order_and_the_rest_by_time():
    rows = [{"path": (f"net.layer.{n}", "k"), "ns": ns, "calls": 1} for n, ns in ((10, 7), (0, 5), (2, 9))]
    rows += [
        {"path": (f"net.{name}", "k"), "ns": ns, "calls": 1} for name, ns in (("head", 1), ("pooler", 3))
    ]
    boxes = time_breakdown.nodes(rows, ("module", "kernel"))
    assert [b["name"] for b in boxes if b["level"] == "module"] == [
        "net",
        "layer",
        "pooler",
        "head",
        "0",
        "2",
        "10",
    ]


def test_names_at_the_ends_of_lines_keep_apart():
    now = [n * 50_000_000 for n in range(4)]
    sampled = {"gpu_percent": [0.0] * 4, "memory_percent": [0.0] * 4, "cpu_percent": [100.0, 100, 100, 1]}
    fig = telemetry.panels({"ts_ns": now, **sampled, "throttled": [None, "power cap", "power cap", None]})
    ends = [a for a in fig.layout.annotations if a.text in ("GPU", "memory", "CPU of the job")]
    scale = 130 / 100  # pixels a percent
    places = sorted(a.y * scale + (a.yshift or 0) for a in ends)
    assert len(ends) == 3 and all(b - a > 10 for a, b in pairwise(places))
    words = {a.text: a for a in fig.layout.annotations}
    assert words["throttled: power cap"].x > words["utilisation (%)"].x, "not on the panel's title"


def test_where_the_time_went_adds_up():
    rows = [{"path": ("net.layer.0", "mm", f"k{n}"), "ns": 100 - n, "calls": 1} for n in range(50)]
    rows.append({"path": ("(no module)", "(no operator)", "lost"), "ns": 7, "calls": 2})
    boxes = time_breakdown.nodes(rows, ("module", "operator", "kernel"), most=12)
    by = {b["id"]: b for b in boxes}
    for box in boxes:
        children = [b for b in boxes if b["parent"] == box["id"]]
        assert not children or sum(c["ns"] for c in children) == box["ns"], box
    assert boxes[0]["ns"] == sum(r["ns"] for r in rows) and any("smaller" in b["name"] for b in boxes)
    assert {b["name"] for b in boxes if b["level"] == "module"} == {"net", "layer", "0"} and len(by) == len(
        boxes
    )
    assert time_breakdown.picture(boxes, "sunburst", "time").data[0].branchvalues == "total"
    with pytest.raises(ValueError, match="icicle or sunburst"):
        time_breakdown.picture(boxes, "pie", "time")


def test_predicted_memory_is_that_of_the_sizes():
    sizes = {"layers": 12, "hidden": 768, "heads": 12, "kv_heads": 12, "head_dim": 64, "ffn": 3072}
    found = memory_plan.predicted(sizes, 109_482_240, 2, 512, "float16", scores=True, cached=512)
    assert found["weights"] == 2 * 109_482_240 and found["KV cache"] == 2 * 12 * 2 * 512 * 12 * 64 * 2
    tokens = 2 * 512
    attention = tokens * 3 * 768 + tokens * 768 + 2 * 2 * 12 * 512 * 512
    assert found["activations"] == 2 * (2 * tokens * 768 + max(attention, 2 * tokens * 3072))
    assert "KV cache" not in memory_plan.predicted(sizes, 1, 1, 1, "float32", False)
    with pytest.raises(ValueError, match="ffn is not known"):
        memory_plan.predicted(sizes | {"ffn": None}, 1, 1, 1, "float32", False)
    with pytest.raises(ValueError, match="int3"):
        memory_plan.kv_cache(1, 1, 1, 1, 1, "int3")


def test_a_models_memory_is_predicted_from_its_sizes():
    from pages._ui.profiler import cost

    bert = cost._work.__wrapped__("model:bert-base", "sdpa", json.dumps({"batch": 2, "seq": 128}), "float16")
    assert (
        bert.memory["weights"] == 2 * 109_482_240
        and "KV cache" not in bert.memory
        and bert.title == "BERT base"
    )
    names = {"prefill": None, "decode": None}
    for phase in names:
        names[phase] = cost._work.__wrapped__(
            "model:gpt2", "sdpa", json.dumps({"batch": 2, "seq": 128, "phase": phase}), "float16"
        )
    assert (
        names["prefill"].memory["KV cache"]
        == names["decode"].memory["KV cache"]
        == 2 * 12 * 2 * 128 * 12 * 64 * 2
    )
    assert names["decode"].memory["activations"] < names["prefill"].memory["activations"]
    assert cost._work.__wrapped__("model:nope", "sdpa", "{}", "float16") is None


def test_charts_say_in_a_sentence_that_there_is_nothing(there):
    for fig in (
        steps.bars([]),
        ncu.speed_of_light([{"name": "k"}]),
        ncu.stalls([], {}),
        memory_time.lines({}, {}),
        moved_bytes.plot([], {}),
        time_breakdown.picture([], "icicle", "time"),
    ):
        assert len(fig.layout.annotations[0].text) > 15


def test_an_upload_waits_in_a_folder_of_its_own_and_only_there_is_discarded(profiles, tmp_path):
    file = importing.receive([("../a trace.json", b'{"traceEvents": []}')])[0]
    assert file.parent.parent == profiles / ".uploads" and file.name == "a_trace.json"
    spec = submit.validate("import", {"file": str(file), "discard": True})
    assert spec["form"] == "chrome" and spec["discard"]
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(ValueError, match="only an upload"):
        submit.validate("import", {"file": str(tmp_path / "mine.json"), "discard": True})
    (file.parent.parent / "stray.json").write_text("{}")
    with pytest.raises(ValueError, match="only an upload"):  # its folder is everybody's
        submit.validate("import", {"file": str(file.parent.parent / "stray.json"), "discard": True})
    old = importing.receive([("b.json", b"{}")])[0]
    import os

    os.utime(old.parent, (0, time.time() - 100_000))
    importing.receive([("c.json", b"{}")])
    assert not old.exists() and file.exists()


def test_several_uploads_are_the_ranks_of_one_job(profiles):
    files = importing.receive([(f"rank{r}.json", b'{"traceEvents": []}') for r in (0, 1)])
    home = files[0].parent
    spec = {"file": str(home), "files": list(map(str, files)), "discard": True}
    assert submit.validate("import", spec)["form"] == "ranks"
    with pytest.raises(ValueError, match="have the same name"):
        importing.receive([("a.json", b"{}"), ("a.json", b"{}")])


def test_tables_traces_and_the_perfetto_ui_are_served(there):
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    client = TestClient(Starlette(routes=perfetto.routes()), base_url="http://127.0.0.1")
    got = client.get(perfetto.csv_address(TRACE, "kernels"))
    assert (
        got.status_code == 200
        and got.text.count("\n") == 7
        and "attachment" in got.headers["content-disposition"]
    )
    assert client.get(perfetto.csv_address(TRACE, "passwd")).status_code == 404
    assert client.get("/tables/..%2f..%2fetc/passwd.csv").status_code in (400, 404)
    made = client.get(perfetto.trace_address(TRACE))
    assert made.status_code == 200 and len(made.json()["traceEvents"]) > 20
    assert client.get(perfetto.trace_address(NCU)).status_code == 404
    page = client.get("/perfetto/index.html")
    assert page.status_code == 200 and "Perfetto" in page.text
    assert "connect-src 'self' data: blob:" in page.headers["content-security-policy"]
    for answer in (got, made):
        assert "sandbox" in answer.headers["content-security-policy"]


def test_units_of_a_table_for_the_eyes():
    from pages._ui.profiler import sentences

    data = pd.DataFrame(
        {
            "ts_ns": [1_000_000],
            "dur_ns": [1500],
            "bytes": [2048],
            "share": [0.5],
            "occupancy": [0.25],
            "name": ["k"],
        }
    )
    shown = sentences.units(data, 0).iloc[0].to_dict()
    assert shown == {
        "start (ms)": 1.0,
        "time (µs)": 1.5,
        "bytes (KiB)": 2.0,
        "share (%)": 50.0,
        "occupancy (%)": 25.0,
        "name": "k",
    }


def test_the_work_of_a_mode_with_8_bit_weights_is_what_it_reads():
    from pages._ui.profiler import cost

    case = {"batch": 1, "seq": 512, "phase": "decode"}
    fused, fp8 = (cost._model("llama3-8b", impl, dict(case), "float16") for impl in ("fused", "fused-fp8"))
    assert fp8.cost.flop_effective == fused.cost.flop_effective
    assert 0.5 * fused.cost.bytes < fp8.cost.bytes < 0.6 * fused.cost.bytes
