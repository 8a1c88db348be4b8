"""The layer's 15 operators: their chain against torch.nn's encoder layer and against arithmetic written out
in NumPy, their FLOP against arithmetic that counts itself, their bytes against the tensors that really
pass."""

import dataclasses
import inspect

import numpy as np
import pytest
import torch
from counted import Number, floats, numbers, step

from fusescope import ops
from fusescope.search.encoding import ATTENTION, encode, parts
from fusescope.search.scheme import unfused
from fusescope.search.scheme.layer import OPERATORS, VALUES, Sizes, cost, edges, flows, parameters

ODD = Sizes(3, 7, heads=3, head_dim=5, ffn=11)
TINY = Sizes(2, 3, heads=2, head_dim=3, ffn=5, density=6 / 9)


def _values(sizes, mask=None, dtype="float64", seed=1):
    return unfused.inputs(sizes, dtype, "cpu", seed, mask)


def _torch_layer(values, sizes):
    layer = torch.nn.TransformerEncoderLayer(
        sizes.hidden,
        sizes.heads,
        sizes.ffn,
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=1e-12,
        batch_first=True,
    ).double()
    names = {
        "self_attn.in_proj_weight": "qkv_weight",
        "self_attn.in_proj_bias": "qkv_bias",
        "self_attn.out_proj.weight": "attention_weight",
        "self_attn.out_proj.bias": "attention_bias",
        "linear1.weight": "ffn1_weight",
        "linear1.bias": "ffn1_bias",
        "linear2.weight": "ffn2_weight",
        "linear2.bias": "ffn2_bias",
        "norm1.weight": "norm1_weight",
        "norm1.bias": "norm1_bias",
        "norm2.weight": "norm2_weight",
        "norm2.bias": "norm2_bias",
    }
    layer.load_state_dict({theirs: values[ours] for theirs, ours in names.items()})
    return layer.eval()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "sizes", [ODD, Sizes(1, 1, 1, 1, 1), Sizes(2, 33, 4, 9, 70), Sizes(2, 16, 2, 8)], ids=str
)
def test_chain_equals_torch(sizes, masked):
    mask = None
    if masked:
        mask = torch.rand(sizes.seq, sizes.seq, generator=torch.Generator().manual_seed(2)) < 0.4
        mask.fill_diagonal_(True)
        sizes = dataclasses.replace(sizes, density=float(mask.double().mean()))
    values = _values(sizes, mask)
    with torch.no_grad():
        theirs = _torch_layer(values, sizes)(values["x"], src_mask=None if mask is None else ~mask)
    ours = unfused.run(values)["out"]
    assert ours.dtype == torch.float64 and ours.shape == values["x"].shape
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def test_every_operator_equals_arithmetic_and_its_flop_are_those_that_arithmetic_does():
    mask = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=torch.bool)
    values = _values(TINY, mask)
    ours = unfused.run(values)
    v = {n: t.numpy() if n == "mask" else numbers(t) for n, t in values.items() if n in VALUES}
    by_row = {5: TINY.batch * TINY.heads * TINY.seq, 10: TINY.batch * TINY.seq, 14: TINY.batch * TINY.seq}
    a_row = {
        5: 1,
        10: 5,
        14: 5,
    }  # once a row and left out of the cost: a reciprocal; two means, eps, a root, a reciprocal
    total = 0
    for o in OPERATORS:
        Number.done.clear()
        got = step(o.number, v, TINY.heads)
        counted = Number.done.total() - by_row.get(o.number, 0) * a_row.get(o.number, 0)
        v.update(zip(o.outputs, got))
        assert cost([o.number], TINY, "float32").flop_executed == counted, o.name
        total += counted
        for name in o.outputs:
            np.testing.assert_allclose(
                ours[name].numpy(), floats(v[name]), rtol=1e-12, atol=1e-12, err_msg=f"{o.name}: {name}"
            )
    assert cost(range(15), TINY, "float16").flop_executed == total


def test_gemm_flop_agree_with_torchs_counter():
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        unfused.run(_values(ODD))
    scale = ODD.batch * ODD.heads * ODD.seq**2
    assert (
        sum(cost([o.number], ODD, "float32").flop_executed for o in OPERATORS if o.unit == "matrix") - scale
        == counter.get_total_flops()
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_shapes_and_bytes_are_those_of_the_tensors_that_pass(dtype):
    sizes = dataclasses.replace(ODD, density=1.0)
    known = unfused.run(_values(sizes, torch.ones(7, 7, dtype=torch.bool), dtype))
    for name, value in VALUES.items():
        assert tuple(known[name].shape) == value.dims(sizes) and known[name].dtype == getattr(
            torch, "bool" if name == "mask" else dtype
        )
        assert known[name].is_contiguous(), name
    for o in OPERATORS:
        found = cost([o.number], sizes, dtype)
        assert found.bytes_read == sum(known[n].nbytes for n in o.inputs), o.name
        assert found.bytes_written == sum(known[n].nbytes for n in o.outputs), o.name


def test_a_fused_part_leaves_out_what_stays_inside():
    sizes = dataclasses.replace(ODD, density=1.0)

    def size(names):
        return sum(VALUES[n].bytes(sizes, "float16") for n in names)

    whole = cost(range(15), sizes, "float16")
    assert (whole.bytes_read, whole.bytes_written) == (
        size(["x", "mask"]) + 2 * parameters(sizes),
        size(["out"]),
    )
    assert flows(range(15))[1] == ("out",) and flows([5])[0] == ("masked_scores",)
    assert flows(ATTENTION) == (("qkv", "mask"), ("merged",))
    assert flows([9, 10]) == (
        ("attention_product", "attention_bias", "x", "norm1_weight", "norm1_bias"),
        ("attended",),
    )
    # What crosses a cut is written once by the part before it and read by each part after; x is read again
    # for the residual.
    crossing = {
        (0, 4, 9): (["qkv_product", "masked_scores", "v", "attention_sum"], ["x"]),
        (1, 7): (["qkv", "merged"], ["x"]),
        (10, 12): (["attended", "intermediate"], ["attended"]),
    }
    for cuts, (names, again) in crossing.items():
        pieces = [cost(p, sizes, "float16") for p in parts(encode(False, cuts))]
        assert sum(p.flop_executed for p in pieces) == whole.flop_executed
        assert sum(p.bytes_written for p in pieces) == size(names) + whole.bytes_written
        assert sum(p.bytes_read for p in pieces) == size(names + again) + whole.bytes_read


def test_costs_agree_with_the_operators_of_their_own():
    n = ODD.batch * ODD.seq
    own = ops.load("layernorm").cost({"rows": n, "cols": ODD.hidden}, "float16")
    mine = cost([10], ODD, "float16")
    assert (mine.flop_executed, mine.bytes_read, mine.bytes_written) == (
        own.flop_executed,
        own.bytes_read,
        own.bytes_written,
    )
    own = ops.load("softmax").cost({"rows": n * ODD.heads, "cols": ODD.seq}, "float16")
    mine = cost([5], ODD, "float16")
    assert (mine.flop_executed, mine.bytes_read, mine.bytes_written) == (
        own.flop_executed,
        own.bytes_read,
        own.bytes_written,
    )
    own = ops.load("gemm").cost({"m": n, "n": ODD.ffn, "k": ODD.hidden}, "bfloat16")
    mine = cost([11], ODD, "bfloat16")
    assert (mine.flop_executed, mine.bytes_read, mine.bytes_written) == (
        own.flop_executed,
        own.bytes_read,
        own.bytes_written,
    )


def test_the_mask_leaves_its_density_of_the_pairs():
    full, half = Sizes(2, 64, density=1.0), Sizes(2, 64, density=0.5)
    for o in OPERATORS:
        a, b = cost([o.number], full, "float16"), cost([o.number], half, "float16")
        assert a.flop_executed == b.flop_executed == a.flop_effective
        assert b.flop_effective == (0.5 if o.number in (3, 5, 6) else 1.0) * a.flop_effective
    assert cost([4], Sizes(2, 64), "float16").bytes == 0, "without a mask there is nothing to do"
    assert cost([4], full, "float16").bytes_read == 64 * 64 + 2 * 2 * 12 * 64 * 64


def test_bert_base():
    sizes = Sizes(8, 512)
    assert parameters(sizes) == 7_087_872
    products = 2 * 8 * 512 * (4 * 768**2 + 2 * 768 * 3072) + 4 * 8 * 512**2 * 768
    matrix = sum(cost([i], sizes, "float16").flop_executed for i in (0, 3, 6, 8, 11, 13))
    assert matrix == products + 8 * 12 * 512**2
    assert cost([3], sizes, "float16").unit == cost(range(3, 6), sizes, "float16").unit == "matrix"
    assert cost([5], sizes, "float16").unit == "vector"


def test_the_graph_is_whole():
    made = [n for o in OPERATORS for n in o.outputs]
    assert [o.number for o in OPERATORS] == list(range(15)) and [o.bit for o in OPERATORS] == list(
        range(1, 16)
    )
    assert (
        len(set(made)) == len(made)
        and not set(made) & set(flows()[0])
        and set(made) | set(flows()[0]) == set(VALUES)
    )
    assert all(a < b for a, b, _ in edges()) and {n for _, _, n in edges()} == set(made) - {"out"}
    for o in OPERATORS:
        taken = len(inspect.signature(getattr(unfused, o.function)).parameters)
        assert taken - len(o.inputs) == (1 if o.number in (2, 5) else 0), o.name
    with pytest.raises(dataclasses.FrozenInstanceError):
        OPERATORS[0].name = "other"


def test_from_any_start():
    """A part run on its own, on what flows into it alone, gives what the whole chain gave."""
    whole = unfused.run(_values(ODD))
    for part in (range(0, 2), range(1, 6), ATTENTION, range(9, 15)):
        taken, given = flows(part)
        got = unfused.run({n: whole[n] for n in (*taken, "heads", "empty_rows")}, part)
        assert all(torch.equal(got[n], whole[n]) for n in given)


def test_rows_that_see_nothing_are_zero():
    mask = torch.ones(3, 1, 7, 7, dtype=torch.bool)
    mask[1, 0, 4] = False
    values = _values(dataclasses.replace(ODD, density=20 / 21), mask)
    known = unfused.run(values)
    assert (
        torch.equal(known["context"][1, :, 4], torch.zeros(3, 5, dtype=torch.float64))
        and known["context"][1, :, 3].abs().min() > 0
    )
    assert known["out"].isfinite().all()
    assert unfused.empty_rows(None) is None and unfused.empty_rows(torch.ones(2, 2, dtype=torch.bool)) is None


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_float32_is_near_float64(device):
    values = _values(ODD)
    near = unfused.run(
        {n: t.to(device, torch.float32) if torch.is_tensor(t) else t for n, t in values.items()}
    )["out"]
    torch.testing.assert_close(near.double().cpu(), unfused.run(values)["out"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Sizes(0, 8), "batch must be an integer of at least 1, not 0"),
        (lambda: Sizes(1, 8, heads="12"), "heads must be an integer of at least 1, not '12'"),
        (lambda: Sizes(1, 8.0), "seq must be an integer of at least 1, not 8.0"),
        (lambda: Sizes(1, 8, ffn=True), "ffn must be an integer"),
        (lambda: Sizes(1, 8, density=0.0), "above 0 and at most 1"),
        (lambda: cost([0], ODD, "int8"), "one of float64, float32, float16, bfloat16, not 'int8'"),
        (lambda: cost([2, 1], ODD, "float16"), "ascending numbers from 0 to 14"),
        (lambda: flows([15]), "ascending numbers from 0 to 14"),
        (lambda: flows([]), "ascending numbers from 0 to 14"),
        (lambda: _values(ODD, torch.ones(7, 7, dtype=torch.bool)), "exactly where its sizes give a density"),
        (lambda: _values(TINY), "exactly where its sizes give a density"),
    ],
)
def test_what_is_no_layer(make, says):
    with pytest.raises(ValueError, match=says):
        make()
