"""Every page: drawn with nothing, with runs, with nonsense in the URL, with folders that are torn."""

import json
import shutil
from urllib.parse import parse_qs

import folders
import profiles_on_disk as disk
import pytest
import synthetic
from drawn_page import calm, query, said

from fusescope.core import paths
from fusescope.core.machine import environment
from fusescope.store import folder, library
from pages._ui.app import frame, url
from pages._ui.widgets.text import device_text

PAGES = list(frame.pages())


def test_every_file_in_pages_is_in_the_frame():
    assert {"app", "build", "kernels", "runs"} <= set(PAGES)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_an_empty_page_has_the_frame_a_title_and_something_to_do(draw, page):
    at = draw(page)
    assert at.title[0].value == (frame.title_of(page) if page != "app" else "FuseScope")
    assert len(at.sidebar.get("page_link")) == len(PAGES)
    assert at.caption[0].value.endswith((".", "?"))
    assert at.button or at.get("page_link")
    assert not at.error


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_a_page_with_runs(draw, few, page):
    at = draw(page)
    assert not at.error
    calm(at.run())


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_redraw_does_not_ask_git(draw, few, page, monkeypatch):
    """The fingerprint of a machine starts git, which takes longer than all else of a redraw."""
    at = draw(page)
    facts, asked = environment.collect("cpu"), []
    monkeypatch.setattr(environment, "collect", lambda device="cpu": asked.append(device) or facts)
    calm(at.run())
    assert not asked


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_nonsense_in_the_url_is_a_sentence_each_and_the_page_stands(draw, few, page):
    nonsense = {
        "run": "../../etc/passwd",
        "compare": "a,b,c",
        "device": "tpu:7",
        "op": "frobnicate",
        "dtype": "int3",
        "cache": "luke",
        "mask": "bigbird:window=-1",
        "batch": "-5",
        "seq": "many",
        "view": "X",
        "page": "0",
        "kind": "<b>",
        "recorded": "perhaps",
        "impl": "nix",
        "archs": "sm_1",
        "of": "zzz",
        "kernel": "zzz",
        "arch": "sm_1",
        "cc": "9.9",
        "block": "7",
        "listing": "ELF",
    }
    at = draw(page, **nonsense)
    warned = [
        w.value
        for w in at.warning
        if "from the URL" in w.value or "run id" in w.value or "no run" in w.value or "two run" in w.value
    ]
    assert warned and all("\n" not in w and len(w) < 400 for w in warned)
    assert "device=tpu:7" in said(at.warning)
    assert "Traceback" not in said(at.warning) + said(at.error)
    calm(at.run())


def test_the_library_says_what_runs_found_and_what_limits_a_profiled_program(draw, profiles):
    folders.write(profiles / "recorded", synthetic.run(), synthetic.point())
    disk.trace(profiles, "20260102-000000-trace-aaaaaa")
    found = draw("runs").dataframe[0].value["result"]
    assert len(found) == 2 and all(found) and any(r.endswith((" % busy", " % idle")) for r in found), found


@pytest.mark.parametrize(
    "run, found",
    [
        ("20261122-101419-search-08e5a9", "1.92× unfused, 28.0 µs"),
        ("20261126-060012-selfcheck-124762", "85 passed, 0 failed, 0 open"),
        ("20261127-092441-parallel-498ef5", "fused-dp4 5.16× sdpa"),
        ("20261126-232952-parallel-c90ffa", "sdpa-dp2 fastest in 2 of 2"),
    ],
)
def test_the_library_says_what_other_kinds_found(draw, profiles, run, found):
    shutil.copytree(paths.ROOT / "profiles" / "recorded" / run, profiles / "recorded" / run)
    (shown,) = draw("runs").dataframe[0].value["result"]
    assert shown == found or (found.startswith(shown.rstrip("…")) and len(shown) > 20)  # in a narrow column


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Intel(R) Xeon(R) Processor", "Intel Xeon"),
        ("Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz", "Intel Core i7-8700"),
        ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763 64-Core"),
        ("NVIDIA H200", "NVIDIA H200"),
    ],
)
def test_devices_by_what_tells_them_apart(name, shown):
    assert device_text(name) == shown


def test_a_recorded_run_is_shown_badged_where_nothing_else_was_measured(draw, profiles):
    folders.write(profiles / "recorded", synthetic.run(), synthetic.point())
    at = draw("kernels")
    assert "recorded on NVIDIA H200" in said(at.markdown)
    assert at.get("plotly_chart")
    assert "recorded on NVIDIA H200" in said(draw("app").markdown)


def test_the_latest_run_of_ones_own_is_dated_and_dimmed_under_other_settings(draw, few):
    at = draw("kernels")
    assert "for other settings" in said(at.info)
    assert "recorded on" not in said(at.markdown)


@pytest.mark.slow
@pytest.mark.parametrize(
    "view", ["Table", "Times", "Sweep", "Roofline", "Accuracy", "Resources", "History", "Trace", "Reproduce"]
)
@pytest.mark.parametrize("name", ["point", "recorded"])
def test_every_view_of_a_run(draw, few, view, name):
    at = draw("runs", run=few[name].id, view=view)
    assert not at.error
    assert query(at)["run"] == few[name].id and (view == "Table" or query(at)["view"] == view)
    if view == "Reproduce":
        assert "fusescope bench attention" in said(at.code)


def test_one_case_of_a_sweep_is_chosen_by_the_url(draw, few):
    at = draw("runs", run=few["recorded"].id, case="seq=1024")
    assert (
        next(b for b in at.selectbox if b.label == "case").value == "seq=1024"
        and query(at)["case"] == "seq=1024"
    )


@pytest.mark.slow
def test_a_torn_run_harms_no_page_and_is_named(draw, few, profiles):
    (profiles / "20261120-120000-bench-777777").mkdir()
    (profiles / "20261120-120000-bench-777777" / "run.json").write_text('{"id": "2026')
    (profiles / few["point"].id / "results.jsonl").open("a").write('{"op": "atten')
    assert "20261120-120000-bench-777777 unreadable: run.json is torn" in said(draw("runs").markdown)
    assert "torn" in said(draw("runs", run="20261120-120000-bench-777777").error)
    at = draw("runs", run=few["point"].id)
    assert not at.error and at.get("plotly_chart")
    for page in PAGES:
        draw(page)


def test_a_run_of_a_newer_version_says_so(draw, profiles, few):
    file = profiles / few["point"].id / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": 99}))
    at = draw("runs", run=few["point"].id)
    assert "newer version" in said(at.error)


def test_a_hostile_title_stays_text(draw, profiles):
    bad = synthetic.run(
        "20261120-130000-bench-666666",
        title="![x](http://evil.example/x.png) <script>alert(1)</script> [a](http://b)",
    )
    folders.write(profiles, bad, synthetic.point())
    for at in (draw("runs", run=bad.id), draw("kernels", run=bad.id)):
        shown = "\n".join(str(m.value) for m in at.markdown)
        assert "![x]" not in shown and "](http://evil" not in shown


def test_the_file_links_of_a_run_lead_to_the_route(draw, few):
    at = draw("runs", run=few["point"].id)
    assert f"/files/{few['point'].id}/results.jsonl" in said(at.markdown)


def test_a_comparison_of_no_run_is_the_list_with_a_sentence(draw, few):
    at = draw("runs", compare="20200101-000000-bench-ffffff")
    assert "There is no run" in said(at.warning) and at.dataframe


def test_notes_are_kept_and_a_recording_is_read_only(draw, few, profiles):
    at = draw("runs", run=few["point"].id)
    next(t for t in at.text_input if t.label == "title").set_value("better title")
    next(t for t in at.text_input if t.label == "tags").set_value("a, b")
    next(b for b in at.button if b.label == "Save").click()
    calm(at.run())
    assert json.loads((profiles / few["point"].id / "notes.json").read_text()) == {
        "title": "better title",
        "tags": ["a", "b"],
        "notes": "",
    }
    at = draw("runs", run=few["recorded"].id)
    assert not any(b.label in ("Save", "Delete it") for b in at.button)


def test_a_run_is_deleted_after_a_second_click(draw, few, profiles):
    at = draw("runs", run=few["point"].id)
    assert (profiles / few["point"].id).is_dir()
    next(b for b in at.button if b.label == "Delete it").click()
    calm(at.run())
    assert not (profiles / few["point"].id).exists()


def test_filters_are_in_the_url_and_an_empty_answer_is_a_sentence(draw, few):
    at = draw("runs", kind="build")
    assert "1 run," in said(at.caption)
    next(t for t in at.text_input if t.label == "Search").set_value("nothing-is-called-so")
    calm(at.run())
    assert "No run matches" in said(at.info) and query(at) == {
        "kind": "build",
        "text": "nothing-is-called-so",
    }


def test_long_lists_are_paged(draw, profiles):
    for n in range(60):
        folders.write(
            profiles,
            synthetic.run(f"20261120-10{n:02d}00-bench-{n:06x}", created=1.7e9 + n),
            [],
            samples=False,
        )
    at = draw("runs", page="2")
    assert "60 runs, page 2 of 3" in said(at.caption) and len(at.dataframe[0].value) == 25
    next(b for b in at.button if b.label == "next ›").click()
    calm(at.run())
    assert "page 3 of 3" in said(at.caption) and len(at.dataframe[0].value) == 10
    assert "page 3 of 3" in said(draw("runs", page="99").caption)


def test_runs_are_told_apart_by_what_differs_and_by_the_columns_asked_for(draw, few):
    table = draw("runs").dataframe[0].value.set_index("run")
    assert {"result", "best speed-up", "shapes", "tags", "status"} <= set(table.columns)
    assert "dtype" in table.columns and "device" not in table.columns, "all are of one device"
    mine = table.loc["rowwise, first try"]
    assert mine["shapes"] == "(1, 512)" and mine["tags"] == "night" and mine["best speed-up"] > 1
    assert list(table.columns).index("over") == list(table.columns).index("best speed-up") + 1
    assert set(table["over"]) == {"eager", ""}, "a ratio says what it is over, even where all are over one"
    assert "4 × (1, 512–4,096)" in list(table["shapes"])
    at = draw("runs", columns="kind,device", order="longest")
    assert list(at.dataframe[0].value.columns) == ["open", "device", "kind"]
    assert query(at) == {"columns": "kind,device", "order": "longest"}
    at = draw("runs", columns="moon")
    assert "Ignored columns=moon" in said(at.warning) and not query(at)


def test_a_click_on_a_line_opens_its_run_in_place(draw, few):
    at = draw("runs")
    run = few["point"].id
    at.session_state["runs/opened"] = run  # as the button of the line has it
    assert query(calm(at.run()))["run"] == run and "‹ All runs" in [p.label for p in at.get("page_link")]


def test_a_view_is_saved_under_a_name_shown_again_and_deleted(draw, few, profiles):
    asked = {"kind": "bench", "order": "oldest", "columns": "kind,device"}
    at = draw("runs", **asked)
    at.text_input(key="runs/views/name").set_value("  nightly   *runs* ")
    at.button(key="runs/views/save").click()
    calm(at.run())
    again = draw("runs")
    again.button(key="runs/views/show/nightly *runs*").click()
    assert query(calm(again.run())) == asked
    again.button(key="runs/views/nightly *runs*").click()
    calm(again.run())
    again.button(key="runs/views/save").click()
    again.run()
    assert "Give the view a name" in said(again.error)
    (profiles / "views" / "runs.json").write_text(
        '{"a": {"kind": "moon", "columns": "x", "run": "y"}, "b": 3}'
    )
    strange = draw("runs")
    strange.button(key="runs/views/show/a").click()
    assert query(calm(strange.run())) == {}
    (profiles / "views" / "runs.json").write_text("[1, {")
    assert "No view is saved yet" in said(draw("runs").caption)


def test_selected_runs_are_tagged_and_deleted_together_but_recorded_ones_stay(draw, few, profiles):
    ids = [few[name].id for name in ("point", "recorded", "failed")]
    at = draw("runs")
    at.session_state["runs/chosen"], at.session_state["runs/drawing"] = ids, 1
    calm(at.run())
    assert "3 selected; the base is A, rowwise, first try." in said(at.caption)
    assert "1 recorded run of the selection cannot be changed." in said(at.caption)
    next(t for t in at.text_input if t.label == "add tags").set_value("kept, new")
    next(t for t in at.text_input if t.label == "remove tags").set_value("night")
    next(b for b in at.button if b.label == "Change tags of 2 runs").click()
    calm(at.run())
    assert [folder.read(library.find(i)).tags for i in ids] == [("kept", "new"), (), ("kept", "new")]
    at.button(key="runs/delete_chosen").click()
    calm(at.run())
    assert [(library.runs(text=i)[1]) for i in ids] == [0, 1, 0]
    assert "select one more to compare" in said(at.caption) and at.button(key="runs/compare").disabled


def test_the_way_back_leads_to_the_list_as_it_was_left(draw, few):
    at = draw("runs", kind="bench", order="oldest", text="attention")
    at.query_params = {}
    at.query_params["run"] = few["point"].id
    calm(at.run())
    link = next(e for e in at.get("page_link") if "All runs" in e.proto.label)
    left = {"kind": ["bench"], "order": ["oldest"], "text": ["attention"]}
    assert parse_qs(link.proto.query_string) == left


def test_a_failed_run_says_why_and_offers_to_go_on(draw, few):
    at = draw("runs", run=few["failed"].id)
    assert "killed by signal 9" in said(at.warning)
    assert any(b.label == "Resume" for b in at.button)


def test_links_are_paths_with_encoded_queries():
    assert url.link("runs", run="a b&c") == "/runs?run=a+b%26c" and url.link("app") == "/"


def _import(draw, name: str, data: bytes):
    at = draw("runs")
    at.file_uploader[0].set_value((name, data, "application/octet-stream"))
    calm(at.run())
    next(b for b in at.button if b.label == "Import").click()
    return calm(at.run())


def test_an_exported_run_is_imported_and_opened(draw, few, tmp_path, profiles):
    from fusescope.store import transfer

    file = transfer.export(few["point"].id, tmp_path)
    transfer.delete(few["point"].id)
    _import(draw, file.name, file.read_bytes())
    assert (profiles / few["point"].id / "results.jsonl").is_file()


def test_a_hostile_file_is_refused_in_one_sentence_and_leaves_nothing(draw, profiles):
    import io
    import tarfile

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        info = tarfile.TarInfo("../../evil.sh")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"ls"))
    for name, data in (
        ("evil.fsrun.tar.gz", raw.getvalue()),
        ("noise.fsrun.tar.gz", b"\x00" * 100),
        ("x.zip", b"PK\x03\x04junk"),
    ):
        at = _import(draw, name, data)
        assert len(at.error) == 1 and "\n" not in at.error[0].value and "Traceback" not in said(at.error)
    assert not [p for p in profiles.parent.rglob("evil.sh")] and not [
        p for p in profiles.iterdir() if not p.name.startswith(".index")
    ]
