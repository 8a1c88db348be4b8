"""The Fusion page: the bits and the code agree, translate and the module are shown, and every part draws from
run folders."""

import dataclasses
import json
import math
import threading
import time

import folders
import fusion_folders
import pytest
import streamlit as st
from drawn_page import calm, query, said, tables

from fusescope.charts.fusion import explain, ranks
from fusescope.core.machine import environment
from fusescope.core.records import Progress
from fusescope.search import encoding
from fusescope.search.scheme import codegen
from fusescope.search.scheme.setting import Setting
from fusescope.store import folder
from pages._ui.app import background
from pages._ui.fusion import runs, scheme, search, sweep

SETTING = {"seq": "16", "heads": "1", "head_dim": "32", "dtype": "float32", "compiler": "none"}
WORKERS = "local:2" if environment.devices() == ["cpu"] else "local"
"""What the page offers for the workers of this machine."""


@pytest.fixture
def some(profiles):
    return fusion_folders.few(profiles)


def code_shown(at) -> list[str]:
    return [c.value for c in at.code]


def pills(at):
    return next(b for b in at.get("button_group") if "Adjacent operators" in b.label)


def until(at, there):
    """Draw again until that is there: what takes seconds is done beside the page."""
    end = time.monotonic() + 240
    while not there(calm(at)) and time.monotonic() < end:
        at.run(timeout=120)
    assert there(at)
    return at


def test_a_scheme_is_translated_drawn_and_generated(draw):
    at = draw("fusion", code="0001101010101010", **SETTING)
    assert "6826 0 2 1 2 3 4" in code_shown(at)
    graph = json.loads(at.get("plotly_chart")[-1].proto.spec)
    words = " ".join(a["text"] for a in graph["layout"]["annotations"])
    assert all(o in words for o in ("QKV GEMM", "scores GEMM with scale", "bias + residual + LayerNorm"))
    boxes = [s for s in graph["layout"]["shapes"] if s["type"] == "rect"]
    assert len(boxes) == len(encoding.parts("0001101010101010"))
    module = codegen.generate("0001101010101010", fusion_folders.SETTING)
    assert module.rstrip() in [text.rstrip() for text in code_shown(at)] and compile(module, "scheme", "exec")
    assert query(at)["seq"] == "16"


def test_code_and_bits_move_each_other(draw):
    at = draw("fusion", **SETTING)
    next(t for t in at.text_input if t.label == "code").set_value("16022")
    calm(at.run())
    assert "16022 0 3 2 6 9 10 13 14" in code_shown(at) and query(at)["code"] == "0011111010010110"
    marked = {int(v.split()[0]) for v in pills(at).value}
    assert marked == {i for i, bit in enumerate("011111010010110") if bit == "1"}
    at.toggle[0].set_value(True)
    calm(at.run())
    assert query(at)["code"] == "1011111010010110" and "nothing is fused with it" in said(at.caption)
    next(b for b in at.button if b.label == "Canonical form").click()
    calm(at.run())
    assert query(at)["code"] == encoding.canonical("1011111010010110")


def test_a_bad_code_is_one_sentence_and_the_scheme_before_stays(draw):
    at = draw("fusion", code="6826", **SETTING)
    next(t for t in at.text_input if t.label == "code").set_value("0101")
    calm(at.run())
    assert "exactly 16 characters" in said(at.error) and "6826 0 2 1 2 3 4" in code_shown(at)
    at = draw("fusion", code="70000", **SETTING)
    assert "Ignored code=70000" in said(at.warning)


@pytest.mark.parametrize("part", ["Sweep", "Cost model", "Search"])
def test_every_part_is_there_without_a_run(draw, part):
    at = draw("fusion", part=part, **SETTING)
    assert not at.error and "yet" in said(at.markdown)
    assert query(at)["part"] == part


def test_a_layer_that_does_not_fit_is_said(draw):
    at = draw("fusion", mask="padding:lengths=3+900", **SETTING)
    assert len(at.error) == 1 and "inconsistent" in said(at.caption)


def test_traverse_shows_the_schemes_and_submits(draw, some, profiles, monkeypatch):
    at = draw("fusion", part="Sweep", **SETTING)
    best = min(fusion_folders.times(), key=fusion_folders.times().get)
    rows = tables(at)[0]
    assert rows[0]["scheme"] == best and {r["scheme"] for r in rows} >= {"unfused", "hand-fused"}
    assert query(at)["traverse"] == some["traverse"].id
    failed = next(m.value for m in at.markdown if "compile" in m.value)
    assert "<b>" not in failed and "not" in failed
    asked = []
    monkeypatch.setattr(
        runs.submit, "submit", lambda kind, spec, title="": asked.append((kind, spec)) or some["traverse"].id
    )
    at.text_input(key="fusion/limit/typed").set_value("7")
    next(box for box in at.selectbox if box.label == "measured by").set_value(WORKERS)
    next(b for b in at.button if b.label == "Start sweep").click()
    calm(at.run())
    assert asked[0][0] == "traverse" and asked[0][1]["limit"] == 7 and asked[0][1]["seq"] == 16
    assert asked[0][1]["cluster"] == WORKERS
    next(b for b in at.button if b.label == "Show the fastest scheme").click()
    calm(at.run())
    assert encoding.translate(best) in code_shown(at)


def test_the_records_of_a_traverse_are_read_once(draw, some, monkeypatch):
    """It may hold 16,000 of them: seconds, which no second reading and no redraw may cost again."""
    st.cache_resource.clear()
    read, records = [], folder.records
    monkeypatch.setattr(folder, "records", lambda path: read.append(path.name) or records(path))
    at = draw("fusion", part="Sweep", **SETTING)
    at.text_input(key="fusion/limit/typed").set_value("7")
    calm(at.run())
    assert read.count(some["traverse"].id) == 1


def test_a_joined_traverse_says_how_much_its_devices_differ():
    said = sweep.sessions_text(
        [
            {"device_uuid": f"GPU-{n}", "baselines_ms": {"unfused": ms}}
            for n, ms in enumerate((0.0535, 0.0538))
        ]
    )
    assert "2 sessions on 2 devices" in said and "53.5 µs to 53.8 µs" in said
    assert (
        sweep.sessions_text([{"device_uuid": "GPU-1", "baselines_ms": {}}])
        == "Measured in 1 session on one device."
    )


def test_codes_are_drawn_as_numbers_and_hovered_as_bits():
    codes = ["1001111110001000", "0111111111111111"]
    marks = [t for t in ranks.ranks(dict.fromkeys(codes, 1.0), {}).data if t.customdata is not None]
    assert [f"{n:016b}" for t in marks for n in t.customdata] == codes and all(
        ":016b}" in t.hovertemplate for t in marks
    )


def test_ranges_are_checked(draw):
    at = draw("fusion", part="Sweep", ranges="5", **SETTING)
    assert "Give pairs" in said(at.error)
    assert sweep.distinct(((32768, 49151), (16384, 24575))) == len(
        encoding.distinct([*range(32768, 49152), *range(16384, 24576)])
    )


@pytest.mark.slow
def test_the_surrogate_is_trained_and_says_high_or_low(draw, some):
    pytest.importorskip("xgboost")
    at = draw("fusion", part="Cost model", code="1001111110000100", data=some["traverse"].id, **SETTING)
    until(at, lambda at: any(m.label == "rank correlation" for m in at.metric))
    correlation = float(next(m for m in at.metric if m.label == "rank correlation").value)
    assert correlation > 0.8
    text = said(at.markdown)
    assert "1001111110000100" in text and ("High (1)" in text or "Low (0)" in text)
    slider = next(s for s in at.slider if s.label.startswith("High performance"))
    slider.set_value(slider.min)
    at.run(timeout=120)
    assert "Low (0)" in said(calm(at).markdown)


def test_without_a_code_the_surrogate_predicts_the_fastest_measured(draw, some, monkeypatch):
    pytest.importorskip("xgboost")
    monkeypatch.setattr(runs, "FEWEST", 0)
    at = draw("fusion", part="Cost model", data=some["traverse"].id, **SETTING)
    until(at, lambda at: any(m.label == "rank correlation" for m in at.metric))
    assert f"`{next(iter(runs.fastest(some['traverse'].id)))}`:" in said(at.markdown)


def test_a_search_shows_what_it_found_and_why(draw, some, monkeypatch):
    at = draw("fusion", part="Search", search=some["search"].id, **SETTING)
    titles = " ".join(
        json.loads(c.proto.spec)["layout"]["title"]["text"]
        for c in at.get("plotly_chart")
        if "title" in c.proto.spec
    )
    assert all(t in titles for t in ("Speed-up of the best scheme", "Best so far", "Which boundaries matter"))
    asked = []
    monkeypatch.setattr(
        runs.submit, "submit", lambda kind, spec, title="": asked.append((kind, spec)) or some["search"].id
    )
    next(b for b in at.button if b.label == "Search").click()
    calm(at.run())
    assert (
        asked[0][0] == "search" and asked[0][1]["strategy"] == "guided" and asked[0][1]["evaluations"] == 100
    )
    assert "cluster" not in asked[0][1]
    next(box for box in at.selectbox if box.label == "measured by").set_value("address")
    at.run()
    assert "scheduler" in said(at.error) and next(b for b in at.button if b.label == "Search").disabled


def test_strategies_are_replayed_on_a_traverse(draw, some):
    at = draw("fusion", part="Search", **SETTING)
    assert "strategies" not in [m.label for m in at.multiselect], "drawn while nobody sees it"
    at.session_state["fusion/compare"] = True  # the expander, opened
    calm(at.run())
    next(m for m in at.multiselect if m.label == "strategies").set_value(["random", "exhaustive"])
    next(b for b in at.button if b.label == "Replay").click()
    at.run(timeout=120)

    def traces(at):
        return {t.get("name") for c in at.get("plotly_chart") for t in json.loads(c.proto.spec)["data"]}

    until(at, lambda at: {"random", "exhaustive"} <= traces(at))
    at.session_state["fusion/compare"] = False
    assert {"random", "exhaustive"} <= traces(calm(at.run())), "closed, it keeps what was chosen"
    linked = draw("fusion", **query(at))
    assert query(at)["replay"] and "strategies" in [m.label for m in linked.multiselect]


def test_a_baseline_far_away_is_said_instead_of_drawn():
    shown, words = ranks.near([1.0, 2.0], {"unfused": 3.0, "compile": 240.0})
    assert shown == {"unfused": 3.0} and "compile 240 ms" in words
    assert ranks.near([1.0], {"unfused": 1.5}) == ({"unfused": 1.5}, "")


def test_effects_are_drawn_with_their_intervals():
    rows = [
        {"after": 3, "names": ["a", "b"], "effect_ms": 0.1, "low": 0.05, "high": 0.15},
        {"after": None, "names": ["x", "y"], "effect_ms": 0.1, "low": -0.1, "high": 0.3},
    ]
    fig = explain.boundaries(rows)
    bars = fig.data[0]
    assert list(bars.error_x.array) == pytest.approx([50, 200]) and list(
        bars.error_x.arrayminus
    ) == pytest.approx([50, 200])
    assert list(bars.marker.opacity) == [1.0, 0.4] and list(bars.y) == ["3 a | 4 b", "y"]
    assert fig.layout.yaxis.showticklabels is False and fig.layout.margin.l < 20, "names take no width"
    assert [a.text for a in fig.layout.annotations] == ["3 a | 4 b", "+100 µs", "y", "+100 µs"]


def test_best_so_far_passes_over_failures():
    line = search.track([None, 2.0, None, 1.0, 3.0])
    assert [(n, best) for n, _, best in line] == [(2, 2.0), (3, 2.0), (4, 1.0), (5, 1.0)]
    assert math.isnan(line[1][1])


def test_a_torn_search_is_one_sentence(draw, some, profiles):
    (profiles / some["search"].id / "artifacts" / "search.json").write_text("{")
    at = draw("fusion", part="Search", search=some["search"].id, **SETTING)
    assert "is torn or not JSON" in said(at.error)


def test_the_address_keeps_what_the_other_parts_were_left_with(draw, some):
    given = {"limit": "24", "code": "0011111010010110", "evaluations": "8", "strategy": "random"}
    given["cluster"] = WORKERS
    at = draw("fusion", **given, **SETTING)
    for part in ("Sweep", "Search", "Scheme"):
        next(b for b in at.get("button_group") if b.label == "part").set_value([part])
        calm(at.run())
        assert query(at) | given == query(at), part


def test_work_beside_the_page_ends_or_says_why():
    going = threading.Event()
    work = background.Task(lambda say: say(1, 4) or (going.wait(60) and "made"))
    assert not work.done(0.01) and work.result is None
    going.set()
    assert work.done(60) and work.result == "made" and work.share == 0.25
    bad = background.Task(lambda say: 1 // 0)
    assert bad.done(60) and isinstance(bad.error, ZeroDivisionError)


def test_the_runs_page_shows_the_schemes_and_leads_to_fusion(draw, some):
    at = draw("runs", run=some["traverse"].id)
    best = min(fusion_folders.times(), key=fusion_folders.times().get)
    assert tables(at)[0][0]["scheme"] == best and any(b.label == "Open in Fusion" for b in at.button)
    assert not any(b.label == "Show the fastest scheme" for b in at.button)
    at = draw("runs", run=some["search"].id)
    titles = " ".join(json.loads(c.proto.spec)["layout"]["title"]["text"] for c in at.get("plotly_chart"))
    assert "Best so far" in titles and "Which boundaries matter" in titles


def recorded(profiles, number: int = 3, seq: int = 64, **changes):
    """A sweep of another layer, recorded on a GPU; its spec."""
    known = fusion_folders.times()
    spec = fusion_folders.SETTING.spec() | {"batch": 4, "seq": seq, "dtype": "float16", "device": "cuda:0"}
    spec |= {"compiler": "inductor"} | changes
    run = dataclasses.replace(
        fusion_folders.run("traverse", number),
        spec=spec,
        environment={"device_name": "NVIDIA H200", "device": "cuda:0"},
        progress=Progress(len(known), len(known), "", None, 0.0),
    )
    baselines = {"unfused": 2.0, "compile": 1.8, "compile_sdpa": 1.2, "hand_fused": 0.9}
    records = [fusion_folders.record(code, ms) for code, ms in (baselines | known).items()]
    folders.write(profiles / "recorded", run, records, samples=False)
    return run, min(known, key=known.get)


def test_the_page_opens_at_the_recorded_winner_and_says_what_it_gains(draw, profiles):
    recorded(profiles, 3, seq=32)
    run, best = recorded(profiles, 4, seq=64)
    at = draw("fusion")
    assert query(at)["code"] == best and query(at)["on"] == "NVIDIA H200"
    ms = fusion_folders.times()[best]
    answer = said(at.markdown)
    assert "Fastest of 80 measured schemes of a layer of BERT, of other sizes:" in answer
    assert "A layer of BERT, of other sizes: batch 4" in said(at.caption)
    assert f"{1.8 / ms:.2f}× torch.compile," in answer
    rows = {row["over"]: row for row in tables(at)[0]}
    assert rows["torch.compile + SDPA"]["speed-up (×)"] == f"{1.2 / ms:.3g}"
    assert list(rows) == ["unfused", "torch.compile", "torch.compile + SDPA", "hand-fused"]
    assert at.session_state["fusion/layer/seq"] == 64 and at.session_state["fusion/layer/dtype"] == "float16"
    assert not any(b.label == "Check and time" for b in at.button), "this machine is not that device"
    sweep_shown = draw("fusion", part="Sweep")
    assert query(sweep_shown)["traverse"] == run.id and "over torch.compile (×)" in tables(sweep_shown)[0][0]


@pytest.mark.parametrize(
    "sizes, model", [({}, "BERT base"), ({"heads": 16}, "BERT large"), ({"ffn": 128}, "BERT, of other sizes")]
)
def test_the_page_says_whose_layer_it_is(sizes, model):
    assert runs.model_text(Setting(1, 128, **sizes)) == model


def test_a_layer_without_a_sweep_names_the_nearest_that_has_one(draw, profiles):
    """It said that this scheme was not measured, and not that another length was."""
    recorded(profiles, 3, seq=32)
    _, best = recorded(profiles, 4, seq=512)
    at = draw("fusion", on="NVIDIA H200", batch="4", seq="1024", heads="1", head_dim="32")
    assert "No sweep of this layer on NVIDIA H200" in said(at.caption)
    offered = [b for b in at.button if b.label.startswith("batch 4, seq")]
    assert [b.label.partition(", 1 ×")[0] for b in offered] == ["batch 4, seq 512", "batch 4, seq 32"]
    offered[0].click()
    calm(at.run())
    assert query(at)["code"] == best and at.session_state["fusion/layer/seq"] == 512
    assert "Fastest of 80 measured schemes" in said(at.markdown)


def test_one_checked_scheme_hides_no_recorded_sweep(draw, profiles):
    run, best = recorded(profiles)
    own = fusion_folders.run("traverse", 5, progress=Progress(1, 1, "", None, 0.0))
    folders.write(profiles, own, [fusion_folders.record(best, 1.0)], samples=False)
    assert query(draw("fusion"))["on"] == "NVIDIA H200"
    assert query(draw("fusion", part="Sweep", on="here", **SETTING))["traverse"] == run.id


def test_a_scheme_of_a_run_keeps_its_layer(draw, some, profiles):
    run, best = recorded(profiles, heads=2)
    at = draw("fusion", part="Sweep", traverse=run.id, on="here", **SETTING)
    next(b for b in at.button if b.label == "Show the fastest scheme").click()
    calm(at.run())
    layer = {name: at.session_state[f"fusion/layer/{name}"] for name in ("batch", "seq", "heads", "dtype")}
    assert layer == {"batch": 4, "seq": 64, "heads": 2, "dtype": "float16"}
    assert query(at)["on"] == "NVIDIA H200" and query(at)["code"] == best
    assert "Fastest of 80" in said(at.markdown)


def test_operators_are_clicked_together(draw):
    at = draw("fusion", code="0" + "10" * 7 + "1", **SETTING)
    marks = [
        t for c in at.get("plotly_chart") for t in json.loads(c.proto.spec)["data"] if t.get("customdata")
    ]
    assert marks[0]["text"] == ["+"] * 14 and marks[0]["customdata"][3] == ["boundary", "3"]
    code = encoding.encode(False, range(14))
    for after, fused in ((3, {3}), (5, {3, 5}), (3, {5})):
        code = scheme.switched(code, after)
        assert set(encoding.boundaries(code)) == set(range(14)) - fused
    at = draw("fusion", code=encoding.encode(True, (1, 7)), **SETTING)
    marks = [
        t for c in at.get("plotly_chart") for t in json.loads(c.proto.spec)["data"] if t.get("customdata")
    ]
    assert [n for _, n in marks[0]["customdata"]] == ["0", "8", "9", "10", "11", "12", "13"]
