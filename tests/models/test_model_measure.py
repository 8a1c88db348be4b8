"""A comparison of execution modes from specification to records: what is correct is timed, what is wrong is
not, and the job and the verb around it."""

import json

import pytest

from fusescope import models
from fusescope.core.records import Record
from fusescope.core.reporter import Collect
from fusescope.jobs.kinds import model as kind
from tests.models.tiny_models import QUICK, case, save


@pytest.mark.slow
def test_modes_of_a_model_become_records(measured):
    reporter = measured("bert-base", ["eager", "sdpa", "fused", "sdpa-graph"], lengths="9+17")
    records = {r.impl: r for r in reporter.records}
    assert {n: r.status for n, r in records.items()} == {
        "eager": "ok",
        "sdpa": "ok",
        "fused": "ok",
        "sdpa-graph": "unsupported",
    }
    for r in (records[n] for n in ("eager", "sdpa", "fused")):
        assert r.op == "model:bert-base" and r.case == case("bert-base", lengths="9+17")
        assert r.accuracy.reference == "float64" and r.accuracy.max_abs < 1e-4
        assert (
            r.time_ms.first > 0
            and r.time_ms.eager.n >= 5
            and r.time_ms.graph is None
            and r.speedup.of == "eager"
        )
        extra, seconds = r.extra, r.time_ms.eager.median / 1e3
        assert (
            extra["parameters"] == models.anatomy("bert-base", r.case)[0].count
            and extra["valid_tokens"] == 26
        )
        assert extra["throughput"]["tokens_per_s"] == pytest.approx(26 / seconds)
        assert (
            extra["throughput"]["sequences_per_s"] == pytest.approx(2 / seconds)
            and extra["throughput"]["images_per_s"] is None
        )
        tail = extra["percentiles_ms"]["eager"]
        assert (
            tail["p50"] == pytest.approx(r.time_ms.eager.median) and tail["p50"] <= tail["p90"] <= tail["p99"]
        )
        assert extra["memory"]["weights_bytes"] > 8e6 and extra["memory"]["peak_bytes"] is None
        assert sum(p["share"] for p in extra["parts"].values()) == pytest.approx(1)
        assert extra["share_of_peak"] == pytest.approx(r.tflops.effective / 1e3)
        assert (r.tflops.executed == r.tflops.effective) == (r.impl == "fused")
        again = Record.from_json(json.loads(json.dumps(r.to_json())))
        assert again.extra == extra and again.case_key == r.case_key
    assert records["sdpa"].backend == "flash_attention" and "varlen" in records["fused"].backend
    assert records["sdpa-graph"].extra is None and "exists on cuda" in records["sdpa-graph"].reason


@pytest.mark.long
def test_images_and_decoding_have_their_own_rates(measured):
    (image,) = measured("vit-base", ["eager"]).records
    assert image.extra["throughput"]["images_per_s"] > 0 and image.extra["throughput"]["tokens_per_s"] is None
    decode = measured("llama-small", ["eager", "fusescope"], phase="decode").records
    assert all(r.status == "ok" and r.extra["valid_tokens"] == 2 for r in decode)
    assert "decode" in next(r for r in decode if r.impl == "fusescope").backend
    made = measured("llama-small", ["eager"], phase="generate", new=4).records
    for r in [*decode, *made]:
        how = r.extra["generation"]
        assert how["token_ms"]["p50"] <= how["token_ms"]["p99"] and how["tokens_per_s"] > 0
        assert how["memory"]["cache_bytes"] > 0 and how["roof_share"] > 0
    assert made[0].status == "ok" and made[0].extra["generation"]["first_ms"] > 0
    assert image.extra["generation"] is None


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("spoil", ["shifted", "remembers", "raises"])
def test_a_wrong_mode_has_no_latency(measured, monkeypatch, spoil):
    """A mode that is off, one that answers from memory (a graph that does not read its inputs), and one that
    fails."""
    from fusescope.models.run import modes

    make = modes.make

    def wrong(name, model, inputs):
        run = make(name, model, inputs)
        if name != "sdpa":
            return run
        kept = run()

        def spoilt():
            if spoil == "raises":
                raise RuntimeError("no such kernel image")
            return kept if spoil == "remembers" else run() * 1.01

        spoilt.graph = False
        return spoilt

    monkeypatch.setattr(modes, "make", wrong)
    records = {r.impl: r for r in measured("bert-base", ["eager", "sdpa"]).records}
    assert records["eager"].status == "ok"
    bad = records["sdpa"]
    assert (
        bad.status == ("error" if spoil == "raises" else "wrong")
        and bad.time_ms is None
        and bad.extra is None
    )
    assert {"shifted": "out of tolerance", "remembers": "fresh values", "raises": "no such kernel image"}[
        spoil
    ] in bad.reason


@pytest.mark.long
def test_a_checkpoint_is_measured(measured, tmp_path):
    from fusescope.measure import model

    save(tmp_path)
    spec = {
        "op": "model:bert-base",
        "impls": ["eager"],
        "cases": [{"batch": 1, "seq": 8}],
        "device": "cpu",
        "checkpoint": str(tmp_path),
    } | QUICK
    reporter = Collect()
    model.run(kind.validate(spec | {"parts": False}), reporter)
    (record,) = reporter.records
    assert record.status == "ok" and record.case["layers"] == 2 and record.extra["parts"] is None


@pytest.mark.parametrize(
    "change, says",
    [
        ({"op": "bert-base"}, "a model's operator is written model:NAME"),
        ({"op": "model:bert-huge"}, "unknown model 'bert-huge'"),
        ({"impls": ["turbo"]}, "has no execution mode 'turbo'"),
        ({"impls": []}, "impls must name one or more implementations"),
        ({"cases": [{"heads": 7}]}, "heads divides the width 768"),
        ({"cases": ["bert"]}, "cases must be a list of one or more objects"),
        ({"cases": [{"batch": 2, "lengths": "3+999"}]}, "a length must be an integer from 1 to 128, not 999"),
        ({"dtype": "float8"}, "dtype must be float32, float16 or bfloat16, not 'float8'"),
        ({"device": "cuda:7"}, "there is no device 'cuda:7' here"),
        ({"checkpoint": "/nowhere"}, "there is no /nowhere/config.json"),
        ({"parts": "yes"}, "parts must be true or false"),
        ({"speed": 3}, "takes op, impls"),
        ({"cache": "hot"}, "cache must be warm"),
    ],
)
def test_a_specification_that_breaks_a_rule(change, says):
    with pytest.raises((ValueError, TypeError)) as refused:
        kind.validate({"op": "model:bert-base", "impls": ["eager"], "cases": [{}], "device": "cpu"} | change)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_the_job_holds_a_checkpoint_against_its_config_before_it_starts(tmp_path):
    save(tmp_path, change=lambda state: state.pop("embeddings.LayerNorm.bias"))
    with pytest.raises(ValueError, match=r"missing: embeddings\.LayerNorm\.bias"):
        kind.validate(
            {
                "op": "model:bert-base",
                "impls": ["eager"],
                "cases": [{"seq": 8}],
                "device": "cpu",
                "checkpoint": str(tmp_path),
            }
        )


@pytest.mark.slow
def test_the_verb_end_to_end(profiles, capsys):
    from fusescope.cli import main
    from tests.cli.conftest import SCHEMAS

    words = "model bert-small --layers 1 --heads 2 --head-dim 32 --batch 2 --seq 16 --lengths 9+16"
    words += " --impl eager,fused --device cpu --budget 0.3"
    assert main([*words.split(), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema = pytest.importorskip("jsonschema")
    from referencing import Registry, Resource

    contents = [json.loads((SCHEMAS / f"{n}.json").read_text()) for n in ("bench", "model")]
    registry = Registry().with_resources([(c["$id"], Resource.from_contents(c)) for c in contents])
    jsonschema.Draft202012Validator(contents[1], registry=registry).validate(data)
    assert [r["status"] for r in data["records"]] == ["ok", "ok"] and data["accuracy"] is None
    from fusescope.store import folder, library

    path = library.find(data["run"])
    assert (
        folder.read(path).kind == "model"
        and len(folder.records(path)) == 2
        and len(folder.samples(path)) == 2
    )


def test_the_verb_says_how_exact_each_way_is(tmp_path, monkeypatch):
    import gzip

    from fusescope.cli.verbs.model import _accuracy_text
    from fusescope.store import library

    def rows(*accepted, error=1e-4):
        return [
            {"name": f"layer.{i}", "accepted": good, "relative_l2": error} for i, good in enumerate(accepted)
        ]

    entries = [
        {"way": "eager", "reason": None, "rows": rows(True, True)},
        {"way": "sdpa", "reason": None, "rows": rows(True, False, error=None)},
        {"way": "flex", "reason": "no biases", "rows": []},
    ]
    (tmp_path / "artifacts").mkdir()
    with gzip.open(tmp_path / "artifacts" / "accuracy.json.gz", "wt") as file:
        json.dump({"schema": 1, "entries": entries}, file)
    monkeypatch.setattr(library, "find", lambda run_id: tmp_path)
    said = [" ".join(line.split()) for line in _accuracy_text("a run").splitlines()[2:]]
    assert said == [
        "eager 0.000100 within its limit everywhere",
        "sdpa infinite exceeds its limit from layer.1 on",
        "flex n/a not checked no biases",
    ]


@pytest.mark.parametrize(
    "words, says",
    [
        ("model bert-base --heads 7", "heads divides the width 768"),
        ("model bert-base --impl turbo", "has no execution mode 'turbo'"),
        ("model bert-base --lengths 3+4", "lengths give 2 sequences, batch is 1"),
        ("model gpt2 --mask full", "a mask that keeps later tokens"),
        ("model bert-base --checkpoint /nowhere", "a checkpoint is a folder with config.json"),
        ("model nothing", "'nothing' is no model here, nor the path of a config.json (known: bert-small"),
    ],
)
def test_the_verb_refuses_in_one_sentence(words, says, capsys):
    from fusescope.cli import main

    assert main([*words.split(), "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_lists_of_the_verb_are_split_where_they_should(capsys):
    from fusescope.cli import case_options
    from fusescope.cli.output import Parser
    from fusescope.cli.verbs import model

    parser = Parser()
    words = [
        "bert-base",
        "--batch",
        "2,4",
        "--lengths",
        "fixed,uniform:low=0.5,seed=3",
        "--mask",
        "full,sliding_window:left=3,right=3",
        "--device",
        "cpu",
    ]
    model.arguments(parser, words)
    spec = model.specify(parser.parse_args(words))
    assert len(spec["cases"]) == 8 and {c["lengths"] for c in spec["cases"]} == {
        "fixed",
        "uniform:low=0.5,seed=3",
    }
    assert spec["impls"] == ["eager", "sdpa", "fusescope", "fused"] and spec["parts"] is True
    assert case_options.device(parser.parse_args(words))[0] == "cpu"


@pytest.mark.gpu
def test_graphs_memory_and_backends_on_a_gpu(profiles):
    """Real times on the device: every mode, memory booked, the fused backend kept in sdpa-graph, and products
    alone beside fused."""
    from fusescope.measure import model

    ways = ["eager", "sdpa", "sdpa-graph", "sdpa-graph-trap", "fusescope", "fusescope-graph", "fused"]
    for asked in ({}, {"lengths": "60+128"}, {"mask": "sliding_window:left=8,right=8"}):
        spec = {
            "op": "model:bert-base",
            "impls": ways,
            "cases": [{"layers": 2, "batch": 2, "seq": 128} | asked],
            "device": "cuda:0",
        }
        reporter = Collect()
        model.run(kind.validate(spec | {"dtype": "float16", "budget_s": 0.5, "min_s": 0.01}), reporter)
        records = {r.impl: r for r in reporter.records}
        for way in ("eager", "sdpa", "sdpa-graph", "fusescope", "fusescope-graph", "fused"):
            r = records[way]
            assert r.status == "ok", (way, asked, r.reason, reporter.lines)
            assert r.time_ms.eager and r.time_ms.graph and r.speedup.of == "graph"
            assert (
                r.extra["memory"]["call_bytes"] + r.extra["memory"]["graph_pool_bytes"] > 0
                and (r.extra["memory"]["graph_pool_bytes"] > 0) == (way == "fused" or "-graph" in way)
                and r.extra["memory"]["nvml_process_bytes"] is None
                and r.extra["memory"]["peak_bytes"] > r.extra["memory"]["weights_bytes"]
            )
            assert sum(p["share"] for p in r.extra["parts"].values()) == pytest.approx(1)
        assert (
            records["sdpa-graph"].backend not in (None, "math")
            and records["eager"].backend == "matmul, softmax, matmul"
        )
        assert all("fusescope" in records[w].backend for w in ("fusescope", "fusescope-graph", "fused"))
        assert records["fused"].extra["gemms_ms"] > 0 and records["sdpa"].extra["gemms_ms"] is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gpt2", "llama-small"])
def test_prefill_and_decode_on_a_gpu(profiles, name):
    from fusescope.measure import model

    for phase in ("prefill", "decode"):
        spec = {
            "op": models.op(name),
            "impls": ["eager", "sdpa", "sdpa-graph", "fusescope", "fusescope-graph"],
            "device": "cuda:0",
        }
        spec |= {
            "cases": [{"layers": 2, "batch": 2, "seq": 128, "phase": phase}],
            "dtype": "float16",
            "budget_s": 0.5,
            "min_s": 0.01,
        }
        reporter = Collect()
        model.run(kind.validate(spec), reporter)
        assert {r.impl: r.status for r in reporter.records} == dict.fromkeys(spec["impls"], "ok"), [
            r.reason for r in reporter.records
        ]
        assert all(r.time_ms.graph and r.extra["throughput"]["tokens_per_s"] > 0 for r in reporter.records)
