"""Cases of decoding with their options: names of earlier cases stay, counts are those of the specification,
what does not fit is an error."""

from __future__ import annotations

import json

import pytest
import torch

from fusescope import ops
from fusescope.cli.tables.records import show
from fusescope.core import paths
from fusescope.core.errors import Unsupported
from fusescope.core.records import Record
from fusescope.core.schema.cases import ABSENT, varying_values, whole

OP = ops.load("attention_decode")
SMALL = {"batch": 2, "heads": 4, "kv_heads": 2, "seq_max": 64, "head_dim": 32, "lengths": "64+20"}
OPTIONS = {
    "tokens": 3,
    "page": "16",
    "window": 9,
    "softcap": 2.0,
    "sinks": "yes",
    "alibi": "yes",
    "bias": "head",
}


def recorded():
    for file in sorted((paths.ROOT / "profiles" / "recorded").glob("2*-bench-*/run.json")):
        spec = json.loads(file.read_text())["spec"]
        yield from spec["cases"] if spec["op"] == "attention_decode" else ()


def test_cases_of_recorded_runs_keep_their_names():
    cases = list(recorded())
    assert cases and all(OP.validate(case) == case for case in cases)


def test_an_option_at_its_default_is_no_key():
    plain = OP.validate(SMALL)
    assert (
        OP.validate(SMALL | {"tokens": 1, "page": "none", "window": None, "sinks": "no", "bias": "none"})
        == plain
    )
    assert OP.validate(SMALL | {k: str(v) for k, v in OPTIONS.items()}) == plain | OPTIONS
    assert set(OP.inputs(plain, "float32", "cpu", 0)) == {"q", "k", "v", "lengths"}


@pytest.mark.parametrize(
    "given, text",
    (
        ({"tokens": 9}, "tokens must be an integer from 1 to 8, not 9"),
        ({"tokens": 8, "seq_max": 5, "lengths": "full"}, "tokens is at most seq_max, 5; not 8"),
        ({"page": "16", "seq_max": 65, "lengths": "full"}, "seq_max is a multiple of page, 16; not 65"),
        ({"page": 17}, "page must be none, 16, 32"),
        ({"window": 0}, "window must be an integer from 1 to"),
        ({"softcap": 0.0}, "softcap must be a number above 0"),
        ({"softcap": float("nan")}, "softcap must be a number above 0"),
        ({"sinks": True}, "sinks must be no or yes"),
        ({"alibi": True}, "alibi must be no or yes"),
        ({"bias": "batch"}, "bias must be none or head"),
    ),
)
def test_what_does_not_fit_is_an_error(given, text):
    with pytest.raises(ValueError, match=text):
        OP.validate(SMALL | given)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", (1, 3, 8))
@pytest.mark.parametrize("window", (None, 1, 9, 1000))
@pytest.mark.parametrize("lengths", ("64+20", "2+0"))
def test_cost_counts_what_is_seen(tokens, window, lengths):
    """Against ones as values and keys of zero: each weight is then one over the keys that a token sees."""
    case = OP.validate(SMALL | {"tokens": tokens, "window": window, "lengths": lengths})
    inputs = OP.inputs(case, "float32", "cpu", 0)
    inputs["k"].zero_()
    seen = torch.zeros(2, 4, tokens, 64)
    for key in range(64):
        inputs["v"].zero_()
        inputs["v"][:, :, key] = 1
        seen[..., key] = (OP.reference(inputs) > 0).float()[..., 0]
    cost = OP.cost(case, "float32")
    assert cost.flop_effective == 4 * 32 * seen.sum().item()
    assert cost.notes["live_keys"] == seen[:, 0].amax(1).sum().item()
    assert cost.flop_executed >= cost.flop_effective
    fewest = seen.sum(3)[seen.sum(3) > 0].min().item()
    full = OP.tolerance(case | {"lengths": "64+64"}, "float32").absolute
    assert (OP.tolerance(case, "float32").absolute > full) == (fewest < min(64 - tokens + 1, window or 64))


@pytest.mark.parametrize("options", ({}, {"tokens": 4, "page": "16"}, {"alibi": "yes", "bias": "head"}))
def test_cost_reads_every_operand_once_where_all_is_seen(options):
    case = OP.validate(SMALL | {"lengths": "full"} | options)
    read = [t for name, t in OP.inputs(case, "float32", "cpu", 0).items() if name != "lengths"]
    assert OP.cost(case, "float32").bytes_read == sum(t.numel() * t.element_size() for t in read)


def test_sdpa_refuses_what_it_lacks():
    for option, what in (("softcap", "soft-capped scores"), ("sinks", "attention sinks")):
        inputs = OP.inputs(OP.validate(SMALL | {option: OPTIONS[option]}), "float32", "cpu", 0)
        for peer in ("sdpa", "sdpa_grouped"):
            with pytest.raises(Unsupported, match=f"has no {what}"):
                ops.make(OP.NAME, peer, inputs)


def test_what_a_case_leaves_out_is_named_by_its_default():
    parameters = [p for name in ops.names() for p in ops.load(name).PARAMETERS]
    omitted = {p.name: p.default for p in parameters if p.omitted}
    assert {k: None if v == "none" and omitted[k] is None else v for k, v in ABSENT.items()} == omitted
    plain, other = (OP.validate(SMALL | given) for given in ({}, {"tokens": 4, "page": "16"}))
    assert varying_values([plain, other]) == {"tokens": [1, 4], "page": ["none", "16"]}
    assert varying_values([plain, plain]) == {} and whole([plain, plain]) == [plain, plain]
    tables = pytest.importorskip("fusescope.charts.tables", reason="charts need plotly")
    sweep = pytest.importorskip("fusescope.charts.bench.sweep")
    records = [
        Record(OP.NAME, impl, case, "float32", "cpu", "oom", "no room")
        for case in (plain, other)
        for impl in ("cpu", "eager")
    ]
    assert list(tables.cases(records)) == ["tokens=1, page=none", "tokens=4, page=16"]
    assert "tokens 1, page none" in show(records, "eager", {})
    more = OP.validate(SMALL | {"tokens": 2})
    both = [Record(OP.NAME, "cpu", case, "float32", "cpu", "oom", "no room") for case in (plain, more)]
    assert sweep.swept_key(both) == "tokens"
