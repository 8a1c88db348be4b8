"""What a reader of the Profiler page sees once: columns without values, cut names, kinds of recorded profile;
and the field that imports."""

import json

import pandas as pd
import profiles_on_disk as disk
import pytest
from drawn_page import calm, said
from profiles_on_disk import OTHER, TRACE

from fusescope.core.machine.conditions import UNNAMED_DEVICE
from pages._ui.profiler import importing, page, sentences
from pages._ui.profiler.views import overview
from pages._ui.widgets import html_table


def test_a_column_without_any_value_is_left_out_and_said_once():
    table = sentences.units(
        pd.DataFrame(
            {"name": ["a", "b"], "occupancy": [float("nan")] * 2, "operator": [None] * 2, "calls": [1, 2]}
        )
    )
    shown, lacks = sentences.without_empty(table)
    assert list(shown.columns) == ["name", "calls"]
    assert lacks.startswith("Not shown, since no row has a value: occupancy (the file lacks registers,")
    assert "operator (no operator was open" in lacks
    assert sentences.without_empty(shown)[1] == ""


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["void a::kernel<flo", "void b::kernel<int", "void c::kernels::x"], "cut after 18 characters"),
        (["void a::kernel...", "gemm"], 'cut where it ends in "..."'),
        (["void a::kernel<int>(int)", "void b::kernel<int>(int)", "void c::kernel<int>(int)"], ""),
        (["a", "b", "c"], ""),
        ([], ""),
    ],
)
def test_names_that_the_file_has_cut(names, says):
    found = sentences.cut_names(pd.DataFrame({"name": pd.Series(names, dtype=object)}))
    assert says in found and bool(found) == bool(says)


def test_a_long_module_breaks_after_a_dot():
    cell = html_table._cell("BertModel.encoder.layer.11.intermediate.dense", 0, "module", {})
    assert "fs-lines" in cell and "encoder.<wbr>layer" in cell
    assert "<wbr>" not in html_table._cell("aten::add.Tensor", 0, "operator", {})


def test_reasons_are_one_sentence_or_lines():
    assert overview._because(["the device was idle 5 %"]) == "The device was idle 5 %."
    assert (
        overview._because(["a", "b"]) == "A; b."
        and overview._because(["a", "b", "c", "d"]).count("  \n") == 3
    )


def recorded(profiles, run_id, spec, kind="trace"):
    (profiles / "recorded").mkdir(exist_ok=True)
    return disk.trace(profiles / "recorded", run_id, spec, kind)


def test_recorded_models_come_first_and_say_what_they_are(draw, profiles):
    recorded(profiles, TRACE, disk.SPEC)
    model = disk.SPEC | {"op": "model:bert-base", "case": {"batch": 8, "seq": 128}}
    recorded(profiles, OTHER, model | {"impl": "fused"})
    eager = "20261120-110000-trace-dddddd"
    recorded(profiles, eager, model | {"impl": "eager"})
    at = draw("profiler")
    box = next(s for s in at.selectbox if s.label == "profile")
    assert [line.rpartition(" ")[2] for line in box.options] == ["dddddd", "cccccc", "aaaaaa"]
    assert [line.partition(" · ")[0] for line in box.options] == ["Model", "Model", "Kernel"]
    assert all("torch.profiler · recorded on NVIDIA H200" in line for line in box.options)


def test_the_picker_and_the_heading_say_that_the_file_names_no_device(draw, profiles):
    path = disk.trace(profiles, TRACE, kind="import")
    run = json.loads((path / "run.json").read_text())
    run["environment"]["device_name"] = UNNAMED_DEVICE
    (path / "run.json").write_text(json.dumps(run))
    file = path / "artifacts" / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"gpus": []}))
    at = draw("profiler", run=TRACE)
    assert " · device not named in the file · " in page._line(page._run(TRACE))
    assert sum(UNNAMED_DEVICE in c.value for c in at.caption) == 1, "not under every chart"


def test_the_field_of_a_path_is_a_form_that_imports_what_is_typed(draw, profiles, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        importing.submit, "submit", lambda kind, spec, title: asked.append((spec, title)) or TRACE
    )
    disk.trace(profiles, TRACE)
    at = draw("profiler", do="import")
    field = next(t for t in at.text_input if t.placeholder == "/path/to/trace.json.gz")
    assert field.proto.form_id and not at.button(key="profiler/import").disabled
    field.set_value(f" {tmp_path}/t.json ")
    calm(at.button(key="profiler/import").click().run())
    assert asked == [({"keep": None, "captured": None, "file": f"{tmp_path}/t.json"}, "t.json")]


def test_without_a_path_nothing_is_imported(draw, profiles):
    at = draw("profiler", do="import")
    at = at.button(key="profiler/import").click().run()
    assert "type the path of a file or folder first" in said(at.error).lower()


def test_a_path_of_a_link_is_in_no_form_until_it_is_confirmed(draw, profiles, tmp_path):
    file = tmp_path / "t.json"
    file.write_text("{}")
    at = draw("profiler", do="import", file=str(file))
    field = next(t for t in at.text_input if t.placeholder == "/path/to/trace.json.gz")
    assert not field.proto.form_id and at.button(key="profiler/import").disabled
