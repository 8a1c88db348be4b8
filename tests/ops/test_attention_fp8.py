"""Attention on e4m3 operands: NaN, growing scores, exact numbers, outliers, masks, strides, torch,
refusals."""

import dataclasses

import pytest
import torch

import fusescope
from fusescope import kernels, masks, ops
from fusescope.core.errors import Unsupported
from fusescope.measure.checking.bounds import Bounds
from fusescope.measure.checking.check import Case, compare
from fusescope.ops.attention.fp8 import attention_fp8, quantise_fp8
from tests.attention import fp8_tools

OP = ops.load("attention_fp8")


def _impl(device):
    return "cpu" if device == "cpu" else "v1_hopper"


@pytest.mark.parametrize("dtype", OP.DTYPES)
@pytest.mark.parametrize("check", fp8_tools.CHECKS, ids=lambda c: c.__name__)
def test_check(check, dtype, device):
    assert check(_impl(device), dtype, device) is None


def test_error_on_numbers_that_e4m3_does_not_hold(device):
    """Rounding q and k moves scores by 3.75 % of their size, each of v and the weights adds 2.65 %: 5.3 %."""
    g = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(1, 4, 700, 128, generator=g).half().to(device) for _ in "qkv")
    given = {"q": q, "k": k, "v": v, "bias": None, "mask": masks.load("full")}
    assert fp8_tools.relative_error(attention_fp8(q, k, v), OP.reference(given)) < 0.06


def test_an_element_may_be_off_by_seven_of_its_own_deviations():
    """Rows in which one key weighs a third are off by more than typical ones; the deviation is what it
    says."""
    case = Case(OP, OP.validate({"batch": 1, "seq": 70, "seq_k": 130, "head_dim": 64}), "float16", "cpu", 3)
    own, right = OP.deviation(case.inputs), case.reference
    off = (OP.call(case.inputs, "cpu").double() - right) / own
    assert 0.8 < float(off.square().mean().sqrt()) < 1.1 and float(off.abs().max()) < 6
    at = int((own / right.abs()).argmax())
    allowed = float(case.tolerance.allowed(right.flatten()[at : at + 1].abs(), at))
    assert 7 * own.flatten()[at] <= allowed <= 7.5 * own.flatten()[at]
    for by, passes in ((0.9, True), (1.1, False)):
        out = right.clone()
        out.flatten()[at] += by * allowed
        assert (compare(out.half(), right, case.tolerance).reason is None) == passes
        broken = Bounds(right, case.tolerance, torch.float16, "cpu").broken_by(out.half())
        assert (broken is None) == passes
    for unknown in (float("nan"), float("inf")):
        nothing = dataclasses.replace(case.tolerance, own=torch.full((right.numel(),), unknown))
        assert compare(out.half(), right, nothing).reason


def test_a_rotation_helps_with_outliers(device):
    q, k, v = fp8_tools.with_outliers(device)
    right = OP.reference({"q": q, "k": k, "v": v, "bias": None, "mask": masks.load("full")})
    plain, rotated = (
        float((attention_fp8(q, k, v, rotate=rotate).double() - right).square().mean().sqrt())
        for rotate in (False, True)
    )
    assert rotated < 9.1e-3 < plain < 2.4e-2


def test_quantised_before_is_the_same_and_can_be_used_again(device):
    _, given = fp8_tools.drawn("float16", device, seq=150, seq_k=70, head_dim=64)
    q, k, v = (given[n] for n in "qkv")
    eights = fusescope.quantise_fp8(q, k, v)
    assert eights.q8.dtype == torch.float8_e4m3fn and eights.q8.shape == (1, 2, 3, 64 * 64)
    assert torch.equal(attention_fp8(eights), attention_fp8(q, k, v))
    mask = masks.load("sliding_window", left=9, right=3)
    assert torch.equal(attention_fp8(eights, mask=mask), fusescope.attention_fp8(q, k, v, mask))


def test_causal_by_index_equals_causal_by_plan_and_by_tensor(device):
    _, given = fp8_tools.drawn("bfloat16", device, seq=200, seq_k=330, head_dim=128)
    q, k, v = (given[n] for n in "qkv")
    causal = masks.load("causal")
    keep = torch.from_numpy(causal.dense(200, 330)).to(device)
    by_index = attention_fp8(q, k, v, causal)
    assert torch.equal(by_index, attention_fp8(q, k, v, fusescope.prepare(causal, 200, 330, device)))
    assert torch.equal(by_index, attention_fp8(q, k, v, keep))


def test_masks_by_head_and_scale(device):
    case, given = fp8_tools.drawn("float16", device, seq=130, head_dim=64)
    q, k, v = (given[n] for n in "qkv")
    keep = torch.rand(1, 2, 130, 130, generator=torch.Generator().manual_seed(1)).to(device) < 0.3
    out = attention_fp8(q, k, v, keep, scale=0.05)
    for h in range(2):
        mask = masks.from_dense(keep[0, h].cpu().numpy())
        one = {"q": q[:, h : h + 1] * (0.05 * 8), "k": k, "v": v, "bias": None, "mask": mask}
        allowed = OP.tolerance(case | {"mask": "random:density=0.3"}, "float16")
        assert compare(out[:, h : h + 1], OP.reference(one), allowed).reason is None


def test_strides(device):
    _, given = fp8_tools.drawn("float16", device, seq=70, head_dim=64)
    packed = torch.stack([given[n].expand(1, 2, 70, 64) for n in "qkv"], 3).contiguous()
    q, k, v = packed.unbind(3)
    backwards = given["q"].transpose(2, 3).contiguous().transpose(2, 3)
    expected = attention_fp8(*(t.contiguous() for t in (q, k, v)))
    assert torch.equal(attention_fp8(q, k, v), expected)
    assert torch.equal(attention_fp8(backwards, given["k"], given["v"]), expected)


def test_opcheck(device):
    kernels.load(device, ("attention_fp8",))
    _, given = fp8_tools.drawn("float16", device, seq=70, head_dim=64)
    q, k, v = (given[n] for n in "qkv")
    quantise = torch.ops.fusescope.attention_fp8_quantise.default
    attend = torch.ops.fusescope.attention_fp8.default
    operands = (*quantise_fp8(q, k, v).tensors, 70, 70, False, True, _impl(device))
    for operator, given in ((quantise, (q, k, v, False, _impl(device))), (attend, operands)):
        torch.library.opcheck(operator, given, test_utils="test_faketensor")  # others compute with float8


@pytest.mark.gpu
def test_graphs_capture_a_call_with_a_plan():
    """Also one of more items than there are blocks, which draw them in every replay."""
    for size in ({"seq": 500, "mask": "sliding_window"}, {"seq": 1000, "mask": "causal", "heads": 64}):
        _, given = fp8_tools.drawn("float16", "cuda:0", head_dim=128, **size)
        q, k, v, plan = (given[n] for n in ("q", "k", "v", "plan"))
        expected = attention_fp8(q, k, v, plan)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = attention_fp8(q, k, v, plan)
        for _ in range(3):
            out.zero_()
            graph.replay()
            assert torch.equal(out, expected)


def test_what_does_not_fit_is_refused_by_name(device):
    _, given = fp8_tools.drawn("float16", device, seq=70, head_dim=64)
    q, k, v = (given[n] for n in "qkv")
    eights = quantise_fp8(q, k, v)
    plan = fusescope.prepare(masks.load("sliding_window"), 80, 70, device)
    for call, error, says in (
        (lambda: attention_fp8(q.float(), k.float(), v.float()), Unsupported, "float16 and bfloat16"),
        (
            lambda: attention_fp8(q[..., :40], k[..., :40], v[..., :40]),
            Unsupported,
            "head size 40; 64 and 128",
        ),
        (lambda: attention_fp8(q, k, v[:, :, 1:]), ValueError, "k and v have one shape"),
        (lambda: attention_fp8(q, k.bfloat16(), v), TypeError, "one dtype"),
        (lambda: attention_fp8(q, k, v, scale=-1.0), Unsupported, "positive"),
        (lambda: attention_fp8(q, k, v, plan), ValueError, "the plan is for 80 queries"),
        (lambda: attention_fp8(eights, k, v), TypeError, "left out"),
        (lambda: attention_fp8(eights, rotate=True), ValueError, "quantise_fp8"),
        (lambda: attention_fp8(q.requires_grad_(), k, v), Unsupported, "forward only"),
    ):
        with pytest.raises(error) as raised:
            call()
        assert says in str(raised.value)


def test_bytes_are_each_operand_once():
    values = OP.validate({"seq": 128, "seq_k": 192, "heads": 4, "kv_heads": 2})
    for quantised in ("before", "inside"):
        values["quantised"] = quantised
        given = OP.inputs(values, "float16", "cpu", 0)
        names = ("q8", "k8", "v8") if quantised == "before" else ("q", "k", "v")
        read = sum(given[name].numel() * given[name].element_size() for name in names)
        assert OP.cost(values, "float16").bytes_read == read
