"""From words to a comparison: cases, lists with commas in them, implementations, defaults; and what is
refused."""

import argparse
import shlex

import pytest

from fusescope import ops
from fusescope.cli import cases
from fusescope.cli.output import Parser
from fusescope.cli.verbs import bench
from fusescope.core import command
from fusescope.core.machine import environment
from fusescope.ops.base import Implementation


def specify(*words):
    parser = Parser(prog="bench", allow_abbrev=False)
    bench.arguments(parser, list(words))
    return bench.specify(parser.parse_args(list(words)))


def test_a_case_keeps_the_commas_of_its_mask():
    parameters = ops.load("attention").PARAMETERS
    got = cases.parse_case("seq=512,mask=bigbird:window=64,seed=1,heads=12", parameters)
    assert got == {"seq": "512", "mask": "bigbird:window=64,seed=1", "heads": "12"}
    assert cases.parse_case("mask=file:a,b.npy,seq=3", parameters) == {"mask": "file:a,b.npy", "seq": "3"}


def test_brackets_keep_their_commas():
    parameters = ops.load("attention").PARAMETERS
    text = "where(q == k, score, t[h, k])"
    assert cases.parse_case(f"heads=3,score={text},seq=5", parameters) == {
        "heads": "3",
        "score": text,
        "seq": "5",
    }
    score = next(p for p in parameters if p.name == "score")
    assert cases.axis(score, f"{text},score + 1, max(score, 0)") == [text, "score + 1", "max(score, 0)"]


@pytest.mark.parametrize(
    "text,found",
    [
        ("causal", ["causal"]),
        ("causal,bigbird:window=64,seed=1,full", ["causal", "bigbird:window=64,seed=1", "full"]),
        ("document:lengths=3+5,causal=true,causal", ["document:lengths=3+5,causal=true", "causal"]),
        ("file:a.npy,causal", ["file:a.npy", "causal"]),
    ],
)
def test_lists_of_masks(text, found):
    assert cases.split_masks(text) == found


def test_lists_of_implementations():
    assert cases.split_impls(["v2_x:TILE=64,STAGES=3,eager", "a/b.py:f,cpu,eager"]) == [
        "v2_x:TILE=64,STAGES=3",
        "eager",
        "a/b.py:f",
        "cpu",
    ]


def test_the_cross_product():
    spec = specify(
        "attention",
        "--batch",
        "1,8",
        "--seq",
        "128,256",
        "--mask",
        "causal,bigbird:seed=1,window=16",
        "--device",
        "cpu",
    )
    assert len(spec.cases) == 8
    assert {(c["batch"], c["seq"], c["mask"]) for c in spec.cases} == {
        (b, s, m) for b in (1, 8) for s in (128, 256) for m in ("causal", "bigbird:window=16,seed=1")
    }
    assert all(
        c["seq_k"] == c["seq"] and c["kv_heads"] == c["heads"] == 12 and c["head_dim"] == 64
        for c in spec.cases
    )


def test_cases_go_before_options():
    spec = specify("gemm", "--case", "m=32,n=32", "--case", "k=8", "--m", "16,64", "--device", "cpu")
    assert [(c["m"], c["n"], c["k"]) for c in spec.cases] == [(32, 32, 1024), (16, 1024, 8), (64, 1024, 8)]


def test_equal_cases_stay_once():
    assert len(specify("add", "--n", "7,7", "--n", "7", "--device", "cpu").cases) == 1


def test_every_parameter_of_every_operator_is_an_option():
    for name in ops.names():
        parser = Parser(prog="bench")
        bench.arguments(parser, [name])
        for p in ops.load(name).PARAMETERS:
            assert f"--{p.name.replace('_', '-')}" in parser.format_help()


def test_defaults_on_the_cpu():
    spec = specify("softmax", "--device", "cpu")
    assert (spec.baseline, spec.dtype, spec.cache, spec.device) == ("eager", "float32", "both", "cpu")
    assert "cpu" in spec.impls and "eager" in spec.impls
    assert not [i for i in spec.impls if i.startswith("v1")], "CUDA kernels do not run on the CPU"


def test_defaults_with_a_gpu(monkeypatch):
    monkeypatch.setattr(environment, "devices", lambda: ["cuda:0", "cpu"])
    monkeypatch.setattr(
        environment, "gpu_of", lambda device: {"compute_capability": "9.0"} if device != "cpu" else None
    )
    spec = specify("softmax")
    assert (spec.device, spec.dtype) == ("cuda:0", "float16")
    assert "cpu" not in spec.impls and any(i.startswith("v1") for i in spec.impls)
    assert specify("softmax", "--device", "cuda").device == "cuda:0"
    assert specify("softmax", "--device", "cpu").dtype == "float32"


def test_a_swept_kernel_without_values_names_all_its_choices(monkeypatch):
    swept = [Implementation(f"v2_x:TILE={t}", "ours", "", ("cpu",)) for t in (32, 64)]
    monkeypatch.setattr(ops, "implementations", lambda *a, **k: swept)
    assert [i.name for i in ops.chosen("add", ["v2_x"], "cpu", None)] == [
        "v2_x:TILE=32",
        "v2_x:TILE=64",
    ]
    assert [i.name for i in ops.chosen("add", ["v2_x:TILE=64"], "cpu", None)] == ["v2_x:TILE=64"]


def test_a_users_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def softmax(x):\n    return x\n")
    spec = specify("softmax", "--impl", f"{file}:softmax,eager", "--device", "cpu")
    assert spec.impls == (f"{file}:softmax", "eager")


@pytest.mark.parametrize(
    "words,says",
    [
        (["nope"], "invalid choice: 'nope'"),
        ([], "required: OP"),
        (["attention", "--impl", "nope"], "attention has no implementation 'nope'; it has"),
        (["attention", "--impl", "no/file.py:f"], "no file"),
        (["attention", "--baseline", "nope"], "attention has no implementation 'nope'"),
        (["attention", "--mask", "bigbrd"], "unknown mask 'bigbrd'; did you mean bigbird?"),
        (["attention", "--mask", "bigbird:windw=3"], "mask bigbird takes window"),
        (["attention", "--mask", "padding:lengths=4+5"], "lengths for 2 sequences, batch is 1"),
        (["attention", "--device", "cuda:9"], "there is no device cuda:9 here; there is"),
        (["attention", "--device", "tpu"], "a device is cpu, cuda or cuda:N, not 'tpu'"),
        (["attention", "--head-dim", "33"], "head_dim must be a multiple of 8 from 32 to 256, not 33"),
        (["attention", "--heads", "12", "--kv-heads", "5"], "heads must be a multiple of kv_heads"),
        (["attention", "--seq", "1,,2"], "a value is empty"),
        (["attention", "--seq", "x"], "seq must be an integer from 1 to 1,048,576, not 'x'"),
        (["attention", "--case", "sq=5"], "the keys are batch"),
        (["attention", "--case", "seq=5,6"], "'6' is not of the form key=value"),
        (["attention", "--case", "seq=5,seq=6"], "seq is given twice"),
        (["attention", "--m", "5"], "unrecognized arguments: --m 5"),
        (["gemm", "--m", "0"], "m must be an integer from 1 to"),
        (["gemm", "--dtype", "float8"], "invalid choice: 'float8'"),
        (["gemm", "--cache", "hot"], "invalid choice: 'hot'"),
        (["gemm", "--budget", "-1"], "argument --budget: must be a number above 0, not -1.0"),
    ],
)
def test_bad_arguments_are_one_sentence(words, says, refused, profiles):
    assert says in refused("bench", *words)
    assert [p for p in profiles.iterdir() if not p.name.startswith(".")] == [], (
        "no run is made for a wrong question"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["attention", "--batch", "1,8", "--seq", "128,256", "--mask", "causal,bigbird:window=16,seed=1"],
        [
            "attention",
            "--case",
            "seq=64,mask=causal",
            "--case",
            "seq=128,heads=4,kv_heads=2,bias=head",
            "--dtype",
            "float16",
        ],
        [
            "attention",
            "--seq",
            "64",
            "--seq-k",
            "128",
            "--cache",
            "warm",
            "--impl",
            "cpu,sdpa",
            "--baseline",
            "sdpa",
        ],
        ["bmm", "--batch-a", "2x3", "--batch-b", "none", "--m", "7,9"],
    ],
)
def test_the_command_a_run_shows_asks_for_the_same(words):
    spec = specify(*words, "--device", "cpu")
    again = shlex.split(command.bench(spec.to_json()))
    assert again[:2] == ["fusescope", "bench"]
    assert specify(*again[2:]) == spec


def test_namespace_is_the_only_state():
    """Two parsers for two operators do not share options."""
    for name in ("gemm", "add"):
        parser = Parser(prog="bench")
        bench.arguments(parser, [name])
        assert isinstance(parser.parse_args([name]), argparse.Namespace)
        assert hasattr(parser.parse_args([name]), "axis_m") == (name == "gemm")
