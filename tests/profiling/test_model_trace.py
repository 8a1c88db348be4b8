"""Models are profiled as operators are: spec, modules of the trace, refusals."""

import pytest
from made_up import kernel, load, trace

from fusescope.core.errors import Unsupported
from fusescope.core.reporter import Collect
from fusescope.jobs.kinds import trace as kind
from fusescope.jobs.profiled import eager_trace, one_case
from fusescope.store import profile

SPEC = {"op": "model:bert-small", "impl": "sdpa", "case": {"batch": 1, "seq": 16, "layers": 2}, "active": 2}


def test_a_spec_is_completed_and_refused_in_a_sentence():
    whole = kind.validate(SPEC)
    assert whole["case"]["heads"] == 8 and whole["device"] == "cpu" and whole["dtype"] == "float32"
    for wrong, error, says in (
        ({"op": "model:nope"}, ValueError, "nope"),
        ({"impl": "nope"}, ValueError, "has no execution mode 'nope'"),
        ({"impl": "sdpa-graph"}, Unsupported, "exists on cuda"),
        ({"dtype": "float64"}, ValueError, "dtype must be float32"),
        ({"case": {"batch": 0}}, ValueError, "batch"),
        ({"case": 3}, ValueError, "case must be an object"),
        ({"captured": "20261120-000000-trace-000000"}, ValueError, "there is no run"),
        ({"captured": 3}, ValueError, "captured must be a text"),
    ):
        with pytest.raises(error, match=says):
            kind.validate(SPEC | wrong)


@pytest.mark.slow
def test_kernels_of_a_model_name_their_module(tmp_path):
    pytest.importorskip("transformers")
    reporter = Collect(tmp_path / "artifacts")
    kind.run(kind.validate(SPEC), reporter)
    modules = {r["module"] for r in profile.rows(tmp_path, "module_summary")}
    assert {"BertModel.encoder.layer.0.attention", "BertModel.encoder.layer.1.output.dense"} <= modules
    operators = profile.rows(tmp_path, "operators")
    linear = next(o for o in operators if o["name"] == "aten::linear" and o["module"])
    assert linear["module"].startswith("BertModel.") and len(profile.rows(tmp_path, "steps")) == 2


def test_compiled_and_captured_ways_are_not_hooked(monkeypatch):
    from fusescope.jobs.profiled import one_model

    entered = []
    with one_model._named(None, "compile-default", lambda module: entered.append(module)):
        pass
    assert not entered


def test_the_eager_trace_of_a_graph_is_a_run_with_kernels(profiles):
    home = profiles / "20261120-120000-trace-0000aa"
    load(trace(_folder(home) / "t.json", [kernel(1, 0, 5, "k")]), home / "artifacts")
    assert eager_trace.kernels(home.name)[0]["name"] == "k" and eager_trace.kernels(None) is None
    (home / "artifacts" / "kernels.parquet").unlink()
    with pytest.raises(ValueError, match="holds no kernels"):
        eager_trace.find(home.name)


def _folder(home):
    (home / "artifacts").mkdir(parents=True)
    (home / "run.json").write_text("{}")
    return home


def test_an_operator_is_still_an_operator():
    whole = one_case.validate({"op": "add", "impl": "eager", "case": {"n": 8}})
    assert whole["case"]["n"] == 8


def _parts(record, mark, work=lambda: None):
    """Two layers as the fused encoder tells them."""
    record("embeddings", None)
    mark("embedding")
    for i in range(2):
        for told in (
            ("qkv", None),
            (None, f"encoder.layer.{i}.attention.self"),
            ("attention", None),
            ("output", None),
            (None, f"encoder.layer.{i}.output"),
            ("norm", None),
        ):
            part, name = told
            work()
            if name:
                record(name, None)
            if part:
                mark(part)


def test_parts_of_the_fused_encoder_are_named_by_layer():
    from fusescope.jobs.profiled import eager_form

    names = eager_form.learn(_parts, "F")
    layer = [[f"F.encoder.layer.{i}.{p}" for p in ("qkv", "attention", "output", "norm")] for i in range(2)]
    assert names == ["F.embedding", *layer[0], *layer[1]]
    vit = eager_form.learn(
        lambda record, mark: (record("layers.3.layernorm_before", None), mark("norm")), "F"
    )
    assert vit == ["F.layers.3.norm"]


def test_the_eager_form_of_a_graph_is_traced_with_its_parts(tmp_path):
    """On the CPU: what the fused encoder's operators are called in, and that the job takes kernels of such a
    trace."""
    torch = pytest.importorskip("torch")
    from fusescope.jobs.profiled import eager_form

    x = torch.randn(8, 8)
    names = eager_form.learn(_parts)

    def call():
        eager_form.in_ranges(lambda record, mark: _parts(record, mark, lambda: torch.mm(x, x)), names)

    from fusescope.profiling.chrome import importer
    from fusescope.profiling.collect import torch_trace

    (tmp_path / "artifacts").mkdir()
    torch_trace.collect(call, tmp_path / "artifacts" / "t.json.gz", "cpu", wait=0, warmup=1, active=1)
    importer.load(tmp_path / "artifacts" / "t.json.gz", lambda name: tmp_path / "artifacts" / name)
    found = [o["module"] for o in profile.rows(tmp_path, "operators") if o["name"] == "aten::mm"]
    assert (
        found[0] == "FusedEncoder.encoder.layer.0.qkv"
        and found[-1] == "FusedEncoder.encoder.layer.1.norm"
        and None not in found
    )
    reporter = Collect(tmp_path / "job")
    assert kind._eager(call, "cpu", reporter) == [] and kind._eager(None, "cpu", reporter) is None
    assert kind._eager(_refuse, "cpu", reporter) is None
    assert any("name no operator" in line for line in reporter.lines)


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["sdpa-graph", "fusescope-graph", "fused"])
def test_replayed_kernels_of_a_model_name_operator_and_module(way, tmp_path):
    """The kernels of a captured model carry one correlation; more than half of them must find their layer by
    order."""
    pytest.importorskip("transformers")
    pytest.importorskip("pyarrow")
    spec = SPEC | {
        "impl": way,
        "device": "cuda:0",
        "dtype": "float16",
        "case": {"batch": 2, "seq": 64, "layers": 2},
    }
    kind.run(kind.validate(spec), Collect(tmp_path / "artifacts"))
    covered = profile.summary(tmp_path)["coverage"]
    assert covered["kernels"] > 10 and covered["by"]["captured trace"] > 0, covered
    assert covered["operator"] > 0.5 and covered["module"] > 0.5, covered
    assert any(".layer.1" in (k["module"] or "") for k in profile.rows(tmp_path, "kernels"))


def test_ways_without_a_graph_have_no_eager_form():
    from types import SimpleNamespace

    from fusescope.jobs.profiled import eager_form

    for device, way in (("cuda:0", "sdpa"), ("cuda:0", "compile-reduce-overhead"), ("cpu", "fused")):
        assert eager_form.of_model(SimpleNamespace(device=device), way, {}) is None


def _refuse():
    raise RuntimeError("no")
