"""Every page: drawn with nothing, with runs, with nonsense in the URL, with folders that are torn."""

import json

import folders
import pandas as pd
import profiles_on_disk as disk
import pytest
import synthetic
from drawn_page import calm, query, said, tables

from fusescope.core import same_code
from pages._ui.app import frame, url
from pages._ui.runs import compare
from pages._ui.widgets.text import device_text

PAGES = list(frame.pages())


def test_every_file_in_pages_is_in_the_frame():
    assert {"app", "build", "kernels", "runs"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_page_has_the_frame_a_title_and_something_to_do(draw, page):
    at = draw(page)
    assert at.title[0].value == (frame.title_of(page) if page != "app" else "FuseScope")
    assert len(at.sidebar.get("page_link")) == len(PAGES)
    assert at.caption[0].value.endswith((".", "?"))
    assert at.button or at.get("page_link")
    assert not at.error


@pytest.mark.parametrize("page", PAGES)
def test_a_page_with_runs(draw, few, page):
    at = draw(page)
    assert not at.error
    calm(at.run())


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
    found = draw("runs").dataframe[0].value.set_index("kind")["answer"]
    assert found["bench"] and found["trace"].endswith((" % busy", " % idle")), found


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
    assert "for different settings" in said(at.info)
    assert "recorded on" not in said(at.markdown)


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


def test_a_torn_run_harms_no_page_and_is_named(draw, few, profiles):
    (profiles / "20261120-120000-bench-777777").mkdir()
    (profiles / "20261120-120000-bench-777777" / "run.json").write_text('{"id": "2026')
    (profiles / few["point"].id / "results.jsonl").open("a").write('{"op": "atten')
    assert "20261120-120000-bench-777777 cannot be read" in said(draw("runs").warning)
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


def test_two_runs_are_compared_with_what_differs(draw, few):
    at = draw("runs", compare=f"{few['point'].id},{few['recorded'].id}")
    assert at.get("plotly_chart") and tables(at)[0]
    assert "same conditions" in said(at.warning) + said(at.success)


def test_an_edit_that_kept_the_machine_code_is_the_same_code(monkeypatch, tmp_path):
    monkeypatch.setenv("FUSESCOPE_CUDA", str(tmp_path))
    same_code.add(tmp_path, {("gemm", "v1"): ("before", "after")})
    pairs = [("before", "after"), ("before", "other"), (None, "after")]
    data = pd.DataFrame(
        {
            "op": "gemm",
            "impl": "v1",
            "case": "{}",
            "verdict": "faster",
            "ratio": 2.0,
            "a_ms": 2.0,
            "b_ms": 1.0,
        }
        | {"a_status": "ok", "b_status": "ok", "a_hash": a, "b_hash": b}
        for a, b in pairs
    )
    assert list(compare.table(data)["same machine code"]) == [True, False, None]


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
    next(b for b in at.button if b.label == "older ›").click()
    calm(at.run())
    assert "page 3 of 3" in said(at.caption) and len(at.dataframe[0].value) == 10
    assert "page 3 of 3" in said(draw("runs", page="99").caption)


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
