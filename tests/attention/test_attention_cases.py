"""The case schema, inputs, reference and cost of attention."""

import math

import pytest
import torch

from fusescope import masks, ops
from tests.attention.attention_tools import OP, case


def test_a_case_is_completed():
    values = OP.validate({"seq": "300", "mask": " sliding_window:right=0 ,left=16".replace(" ,", ",")})
    assert values == {
        "batch": 1,
        "heads": 12,
        "kv_heads": 12,
        "seq": 300,
        "seq_k": 300,
        "head_dim": 64,
        "mask": "sliding_window:left=16,right=0",
        "bias": "none",
    }
    assert OP.validate(values) == values
    assert OP.validate({})["mask"] == "full"
    assert OP.validate({"score": " score  + slope[h]*k"})["score"] == "score + slope[h]*k"


@pytest.mark.parametrize(
    "values, text",
    [
        ({"sequence": 3}, "attention takes batch, heads, .* not sequence"),
        ({"seq": 0}, "seq must be an integer from 1 to"),
        ({"seq": 1.5}, "seq must be an integer from 1 to 1,048,576, not 1.5"),
        ({"head_dim": 36}, "head_dim must be a multiple of 8 from 32 to 256, not 36"),
        ({"head_dim": 512}, "head_dim must be an integer from 32 to 256, not 512"),
        ({"heads": 4, "kv_heads": 3}, "heads must be a multiple of kv_heads; 4 is not one of 3"),
        ({"bias": "yes"}, "bias must be none or head, not 'yes'"),
        ({"score": "score + x"}, "'x': the names are score, b, h, q, k"),
        ({"mask": "nothing"}, "unknown mask 'nothing'"),
        ({"mask": "causal:window=3"}, "takes no parameters, not window"),
        ({"mask": 3}, "mask must be a mask such as causal or bigbird:window=64,seed=1, not 3"),
        ({"mask": "padding:lengths=3+5"}, "lengths for 2 sequences, batch is 1"),
        ({"mask": "padding:lengths=600"}, "at most the 512 keys"),
        ({"mask": "document:lengths=3+5/4+4", "batch": 3}, "lengths for 2 sequences, batch is 3"),
        ({"mask": "file:none.npy"}, "no file"),
    ],
)
def test_what_a_case_refuses(values, text):
    with pytest.raises(ValueError, match=text):
        OP.validate(values)


def test_cost_counts_live_elements_and_live_tiles():
    values = case(100, 200, "causal", heads=4, kv_heads=2, batch=3, head_dim=40)
    live = masks.load("causal").dense(100, 200).sum()
    cost = OP.cost(values, "float16")
    assert cost.flop_effective == 4 * 40 * live * 12
    assert cost.flop_effective < cost.flop_executed <= 4 * 40 * 100 * 200 * 12
    assert (
        cost.bytes_read == 2 * 40 * 3 * (4 * 100 + 2 * 2 * 200) and cost.bytes_written == 2 * 40 * 3 * 4 * 100
    )
    assert OP.cost(values | {"bias": "head"}, "float32").bytes_read == 2 * cost.bytes_read + 4 * 4 * 100 * 200
    full = OP.cost(case(100, 200), "float32")
    assert cost.size == (cost.flop_executed, cost.bytes, 4 * 40 * 100 * 200 * 12)
    assert full.size[2] == full.flop_executed
    assert full.flop_effective == full.flop_executed == 4 * 32 * 100 * 200 * 4 and full.unit == "matrix"
    padded = OP.cost(case(64, 64, "padding:lengths=10+64"), "float32")
    assert padded.flop_effective == 4 * 32 * 64 * 74 * 2


def test_awkward_inputs_are_views_with_an_offset():
    values = case(33, 65, heads=4, kv_heads=2, bias="head")
    inputs = OP.inputs(values, "float16", "cpu", 0, contiguous=False)
    assert inputs["q"].shape == (2, 4, 33, 32) and inputs["k"].shape == inputs["v"].shape == (2, 2, 65, 32)
    for name in ("q", "k", "v"):
        assert not inputs[name].is_contiguous() and inputs[name].storage_offset() % 8
    assert inputs["k"].untyped_storage().data_ptr() == inputs["v"].untyped_storage().data_ptr()
    assert inputs["bias"].shape == (1, 4, 33, 65) and not inputs["bias"].is_contiguous()
    other = OP.inputs(values, "float16", "cpu", 1, contiguous=False)
    assert not torch.equal(inputs["q"], other["q"])


def test_the_reference_is_attention_written_plainly(monkeypatch):
    values = case(20, 30, "random:density=0.05", heads=4, kv_heads=2, bias="head")
    inputs = OP.inputs(values, "float32", "cpu", 0)
    keep = masks.parse(values["mask"]).dense(20, 30)
    assert (~keep).all(1).any(), "this test wants rows without a key"
    from fusescope.ops.attention.describe import inputs as module

    for piece in (1 << 25, 7):
        monkeypatch.setattr(module, "_PIECE", piece)
        out = OP.reference(inputs)
        for b, h, row in ((0, 0, 0), (1, 3, 19), (0, 2, 7), (1, 1, int((~keep).all(1).argmax()))):
            keys = keep[row].nonzero()[0]
            scores = inputs["k"][b, h // 2, keys].double() @ inputs["q"][b, h, row].double() / 32**0.5
            weights = torch.softmax(scores + inputs["bias"][0, h, row, keys].double(), 0)
            expected = (
                weights @ inputs["v"][b, h // 2, keys].double()
                if len(keys)
                else torch.zeros(32, dtype=torch.float64)
            )
            torch.testing.assert_close(out[b, h, row], expected)


def test_auto_is_named():
    inputs = OP.inputs(case(16), "float32", "cpu", 0)
    assert ops.make("attention", "auto", inputs).backend == "cpu"


@pytest.mark.gpu
def test_auto_on_a_gpu_goes_by_dtype():
    def chosen(dtype, **values):
        return OP.auto(OP.inputs(case(**values), dtype, "cuda", 0))

    for mask in ("full", "sliding_window:left=4,right=4"):
        assert chosen("float32", seq=512, mask=mask) in ("v1_rowwise", "v2_blockwise_fp32")
    if torch.cuda.get_device_capability() >= (8, 0):
        assert chosen("float16", seq=512) != "v1_rowwise"


def test_the_allowed_error_shrinks_with_the_outputs():
    long, short = (OP.tolerance(case(seq, batch=1), "bfloat16") for seq in (4096, 16))
    assert long.absolute == pytest.approx(short.absolute / 16) and long.relative == short.relative
    assert long.absolute < (math.e / 4096) ** 0.5 / 4, (
        "a wrong mask must not hide: outputs have about this standard deviation"
    )
    assert (
        OP.tolerance(case(4096, batch=1, mask="causal"), "bfloat16").absolute
        == OP.TOLERANCE["bfloat16"].absolute
    )


def test_a_record_says_what_was_prepared_outside_the_calls():
    """The plan's build time and size of our kernels, and nothing for a peer that prepares nothing."""
    from types import SimpleNamespace

    from fusescope import ops
    from fusescope.core.records import Record, Time, Times
    from fusescope.measure.subject import Operator

    values = OP.validate({"batch": 1, "heads": 1, "seq": 130, "head_dim": 32, "mask": "causal"})
    inputs = OP.inputs(values, "float32", "cpu", 0)
    times = Times(first=1.0, eager=Time(1.0, 1.0, 1.0, 10, True))
    for impl in ("cpu", "auto", "sdpa"):
        record = Record("attention", impl, values, "float32", "cpu", "ok", time_ms=times)
        run = ops.make("attention", impl, inputs)
        said = Operator("attention").complete(None, SimpleNamespace(run=run), record).extra
        if impl == "sdpa":
            assert said is None
        else:
            plan = inputs["plan"]
            assert (
                said["setup"]["ms"] > 0
                and said["setup"]["bytes"] == plan.bytes
                and said["setup"]["compile_ms"] is None
            )
