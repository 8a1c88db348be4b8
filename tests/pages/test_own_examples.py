"""The example of an own function, of each operator: what the Kernels page writes is correct."""

import pytest

from fusescope import ops
from pages._ui.forms import own_examples


@pytest.mark.parametrize(
    ("op", "small"),
    [
        ("add", {"n": 1000}),
        ("gemm", {"m": 33, "n": 17, "k": 9}),
        ("bmm", {"m": 5, "n": 7, "k": 9}),
        ("softmax", {"rows": 9, "cols": 33}),
        ("layernorm", {"rows": 5, "cols": 48}),
        ("attention", {"seq": 80, "heads": 4, "kv_heads": 2, "head_dim": 32, "mask": "bigbird"}),
        ("bias_gelu", {"rows": 9, "cols": 48}),
        ("bias_residual_layernorm", {"rows": 5, "cols": 48}),
        ("embedding_layernorm", {"batch": 2, "seq": 7, "cols": 48, "vocab": 31}),
        ("linear", {"rows": 5, "inputs": 24, "outputs": 40, "activation": "gelu", "residual": "yes"}),
        ("linear_weight_only", {"rows": 3, "inputs": 24, "outputs": 40, "weight": "fp8", "residual": "yes"}),
        ("padding", {"batch": 3, "seq": 9, "cols": 16}),
        ("padding", {"batch": 3, "seq": 9, "cols": 16, "direction": "unpack"}),
        ("split_heads", {"batch": 2, "seq": 7, "heads": 4, "kv_heads": 2, "head_dim": 8}),
        ("rmsnorm_residual", {"rows": 5, "cols": 48}),
        ("rope_cache", {"batch": 2, "tokens": 3, "heads": 4, "kv_heads": 2, "head_dim": 8, "page": "16"}),
        ("swiglu", {"rows": 5, "cols": 48}),
        ("attention_decode", {"batch": 3, "heads": 4, "kv_heads": 2, "seq_max": 50, "head_dim": 32}),
        (
            "attention_varlen",
            {"batch": 3, "heads": 4, "kv_heads": 2, "seq": 40, "head_dim": 32, "causal": "yes"},
        ),
        ("sddmm", {"seq": 70, "seq_k": 50, "heads": 2, "head_dim": 16, "mask": "bigbird"}),
        ("sddmm", {"seq": 70, "heads": 2, "head_dim": 16, "mask": "causal", "format": "bsr16"}),
        ("sparse_softmax", {"seq": 70, "heads": 2, "mask": "bigbird"}),
        ("spmm", {"seq": 70, "heads": 2, "head_dim": 16, "mask": "bigbird"}),
        ("spmm", {"seq": 70, "heads": 2, "head_dim": 16, "mask": "causal", "format": "bsr16"}),
        ("gat", {"seq": 50, "heads": 2, "head_dim": 16, "mask": "random"}),
    ],
)
def test_every_example_is_correct(op, small, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    written = own_examples.write(op, ops.load(op).TITLE)
    module, case = ops.load(op), ops.load(op).validate(small)
    inputs = module.inputs(case, "float32", "cpu", 0)
    allowed = ops.tolerance(op, case, "float32")
    reference = module.reference(inputs)
    joined = getattr(module, "joined", lambda result: result)
    error = (joined(ops.make(op, written, inputs)()).double() - reference).abs()
    assert (error <= allowed.absolute + allowed.relative * reference.abs()).all()
    before = open(written.rpartition(":")[0]).read()
    assert own_examples.write(op, "else") == written and open(written.rpartition(":")[0]).read() == before


def test_every_example_is_tested():
    tested = [m.args[1] for m in test_every_example_is_correct.pytestmark if m.name == "parametrize"]
    assert {op for op, _ in tested[0]} == {op for op in ops.names() if own_examples.has(op)}
    assert len({op for op, _ in tested[0]}) >= 18


def test_what_may_be_left_out_is_said_where_the_call_is():
    assert own_examples.called("layernorm").endswith("bias, eps)`, where eps may be left out")
    assert own_examples.called("softmax") == "called as `mine(x)`"
