"""What attention() refuses: one sentence with the rule, what was given, and what is supported."""

import pytest
import torch

from fusescope import masks
from fusescope.core.errors import Unsupported
from fusescope.ops.attention import attention, attention_decode, prepare
from fusescope.ops.attention.dispatch import candidates
from fusescope.ops.attention.work import parts

Q, K = (2, 4, 9, 32), (2, 2, 11, 32)


def make(shape, dtype=torch.float32, **kw):
    return torch.zeros(shape, dtype=dtype, **kw)


SHAPES = [
    ((4, 9, 32), K, K, ValueError, r"q is \(B, H, S_q, D\)"),
    (Q, (2, 2, 11, 40), (2, 2, 11, 40), ValueError, "q's batch and head size"),
    (Q, (3, 2, 11, 32), (3, 2, 11, 32), ValueError, "q's batch and head size"),
    (Q, K, (2, 2, 12, 32), ValueError, "k and v have one shape"),
    (Q, (2, 3, 11, 32), (2, 3, 11, 32), ValueError, "a multiple of that of KV heads; 4 is not one of 3"),
    ((2, 4, 0, 32), K, K, ValueError, "every size is at least 1"),
    ((2, 4, 9, 32), (2, 2, 0, 32), (2, 2, 0, 32), ValueError, "every size is at least 1"),
    (
        (2, 4, 9, 36),
        (2, 2, 11, 36),
        (2, 2, 11, 36),
        Unsupported,
        "head size 36; multiples of 8 from 32 to 256",
    ),
    ((2, 4, 9, 24), (2, 2, 11, 24), (2, 2, 11, 24), Unsupported, "head size 24"),
    ((2, 4, 9, 264), (2, 2, 11, 264), (2, 2, 11, 264), Unsupported, "head size 264"),
]


@pytest.mark.parametrize("q, k, v, error, text", SHAPES)
def test_shapes(q, k, v, error, text):
    with pytest.raises(error, match=text):
        attention(make(q), make(k), make(v))


def test_kinds_dtypes_and_devices():
    q, k = make(Q), make(K)
    with pytest.raises(TypeError, match="v is a tensor, not list"):
        attention(q, k, [1])
    with pytest.raises(TypeError, match=r"one dtype, not torch.float32, torch.float16 and torch.float32"):
        attention(q, k.half(), k)
    with pytest.raises(Unsupported, match=r"dtype torch.float64; float32, float16 and bfloat16"):
        attention(q.double(), k.double(), k.double())
    with pytest.raises(ValueError, match="on one device, not on cpu, meta and cpu"):
        attention(q, k.to("meta"), k)
    with pytest.raises(Unsupported, match="device meta; cpu and cuda are supported"):
        attention(q.to("meta"), k.to("meta"), k.to("meta"))
    with pytest.raises(Unsupported, match="k is a sparse_coo tensor"):
        attention(q, k.to_sparse(), k)
    with pytest.raises(Unsupported, match="q is a nested tensor"):
        attention(torch.nested.nested_tensor(list(q)), k, k)
    with pytest.raises(Unsupported, match="no implementation 'v9_none'"):
        attention(q, k, k, impl="v9_none")


def test_a_call_like_an_earlier_one_is_refused_in_the_same_words():
    q, k = make(Q), make(K)
    lengths = torch.ones(2, dtype=torch.int32)
    for _ in range(2):  # the second time the first call is remembered
        with pytest.raises(TypeError, match="scale is a number or None, not 'large'"):
            attention(q, k, k, scale="large")
        for odd in ("0.1", True):  # float() takes both
            with pytest.raises(TypeError, match=f"scale is a number or None, not {odd!r}"):
                attention(q, k, k, scale=odd)
            with pytest.raises(ValueError, match=f"softcap is a finite number above 0, or None, not {odd!r}"):
                attention(q, k, k, softcap=odd)
        with pytest.raises(TypeError, match="scale is a number or None, not tensor"):
            attention(q, k, k, scale=torch.ones(2))
        with pytest.raises(Unsupported, match="k is a sparse_coo tensor"):
            attention(q, k.to_sparse(), k)
        with pytest.raises(ValueError, match="every size is at least 1"):
            attention_decode(q[:0, :, :1], k[:0], k[:0], lengths[:0])
        attention(q, k, k)
        attention_decode(q[:, :, :1], k, k, lengths)


def test_forward_only():
    q, k = make(Q).requires_grad_(), make(K)
    with pytest.raises(
        Unsupported, match=r"forward only, but an input requires a gradient; call it under torch.no_grad"
    ):
        attention(q, k, k)
    with pytest.raises(Unsupported, match="bias requires a gradient"):
        attention(q.detach(), k, k, bias=make((9, 11)).requires_grad_())
    with torch.no_grad():
        assert attention(q, k, k).shape == Q


def test_prepared_tensors():
    mask = make((9, 11), torch.bool)
    for sizes in ((0, 11), (-9, 11), (9, 11.0), (True, 11)):
        with pytest.raises(ValueError, match=r"seq_[qk] must be an integer from 1 to 1,048,576"):
            prepare(mask, *sizes)
    with pytest.raises(ValueError, match=r"broadcastable to \(B, H, 9, 11\); its shape is \(0, 1, 9, 11\)"):
        prepare(make((0, 1, 9, 11), torch.bool), 9, 11)


def test_masks():
    q, k = make(Q), make(K)
    with pytest.raises(TypeError, match="a mask is a Mask, a bool tensor or None, not str"):
        attention(q, k, k, "causal")
    with pytest.raises(
        TypeError, match=r"of bool, True = keep, not torch.float32; scores are added to by bias="
    ):
        attention(q, k, k, make((9, 11)))
    with pytest.raises(
        ValueError,
        match=r"broadcastable to \(B, H, S_q, S_k\) = \(2, 4, 9, 11\); its shape is \(3, 1, 9, 11\)",
    ):
        attention(q, k, k, make((3, 1, 9, 11), torch.bool))
    with pytest.raises(ValueError, match="written for 3 sequences, the batch is 2"):
        attention(q, k, k, masks.load("padding", lengths=(1, 2, 3)))
    with pytest.raises(ValueError, match="the plan is for 9 queries and 12 keys; this call has 9 and 11"):
        attention(q, k, k, prepare(None, 9, 12))
    with pytest.raises(ValueError, match="masks for 3 batch entries and 1 heads; this call has 2 and 4"):
        attention(q, k, k, prepare(make((3, 1, 9, 11), torch.bool), 9, 11))
    with pytest.raises(ValueError, match="it cannot be bound to 9 by 11"):
        attention(q, k, k, masks.from_dense(torch.ones(9, 12, dtype=torch.bool).numpy()))


def test_kernels_of_another_architecture_are_refused_with_what_to_use():
    for impl, capability, instead in (
        ("v2_blockwise", (7, 5), "v1_rowwise, v2_blockwise_fp32"),
        ("v3_hopper", (8, 0), "v1_rowwise, v2_blockwise, v2_blockwise_fp32"),
        ("v4_scheduled", (7, 5), "v1_rowwise, v2_blockwise_fp32"),
        ("v5_parts", (8, 9), "v1_rowwise, v2_blockwise, v2_blockwise_fp32"),
    ):
        with pytest.raises(
            Unsupported,
            match=f"{impl} is for sm_.* and this GPU is sm_{capability[0]}{capability[1]}; use {instead}$",
        ):
            candidates.refuse_architecture(impl, capability)
    for impl in (
        "v1_rowwise",
        "v2_blockwise_fp32",
        "v2_blockwise",
        "v4_scheduled",
        "v9_none",
    ):  # the last is the library's to refuse
        candidates.refuse_architecture(impl, (9, 0))


def test_bias():
    q, k = make(Q), make(K)
    with pytest.raises(TypeError, match="bias is a tensor"):
        attention(q, k, k, bias=1.0)
    with pytest.raises(TypeError, match="a bool mask goes to mask="):
        attention(q, k, k, bias=make((9, 11), torch.bool))
    with pytest.raises(TypeError, match=r"q's dtype torch.float32 or torch.float32, not torch.float16"):
        attention(q, k, k, bias=make((9, 11), torch.float16))
    with pytest.raises(ValueError, match=r"bias is broadcastable to .* its shape is \(5, 9, 11\)"):
        attention(q, k, k, bias=make((5, 9, 11)))
    with pytest.raises(ValueError, match="bias is on q's device cpu, not on meta"):
        attention(q, k, k, bias=make((9, 11), device="meta"))


def test_the_operator_itself_checks_what_it_is_given():
    """torch.ops.fusescope.attention can be called without attention() before it: no read out of bounds then
    either."""
    attention(make(Q), make(K), make(K))
    operator = torch.ops.fusescope.attention

    plan = prepare(masks.load("causal"), 9, 11)
    apart = parts.of(plan, 2, 4, 32)
    rows = apart.parts.tolist()
    rows[-1][3] += 1  # a round more than there is
    beyond = " ".join(apart.layout.split()[:11] + [str(n) for row in rows for n in row])
    of_four = apart.layout.removesuffix(" 2") + " 4"  # query tiles of a group
    sizes, lengths = plan.layout.split()[:4], plan.layout.split()[4:]

    def call(q=Q, k=K, v=K, bias=None, buffer=plan.buffer, layout=plan.layout, impl="cpu"):
        return operator(make(q), make(k), make(v), impl, buffer, layout, 1.0, bias)

    def changed(**numbers):
        names = (
            "seq_q",
            "seq_k",
            "batch",
            "heads",
            "bitmaps",
            "fragments",
            "items",
            "schedule",
            "row_ptr",
            "tile_index",
            "tile_code",
        )
        return " ".join(str(numbers.get(name, have)) for name, have in zip(names, (*sizes, *lengths)))

    assert changed() == plan.layout and call().shape == Q and torch.equal(call(bias=make((9, 11))), call())
    for arguments, text in (
        ({"q": (2, 4, 9, 36), "k": (2, 2, 11, 36), "v": (2, 2, 11, 36)}, "unsupported: head_dim 36"),
        ({"k": (2, 3, 11, 32), "v": (2, 3, 11, 32)}, "H is a multiple of H_kv"),
        ({"v": (2, 2, 12, 32)}, "k and v are"),
        ({"bias": make((1, 1, 1, 9, 11))}, "bias has up to four dimensions"),
        ({"bias": make((1, 1, 9, 12))}, "bias is broadcastable"),
        ({"q": (2, 4, 70, 32)}, "the plan is for other sizes: 9 queries and 11 keys"),
        ({"layout": changed(batch=3)}, "the plan is for other sizes: .* 3 batch entries"),
        ({"layout": changed(batch=2)}, "row_ptr of 2 numbers, these sizes have 3"),
        ({"layout": changed(bitmaps=int(lengths[0]) + 128)}, "shorter than its layout says"),
        ({"layout": changed(bitmaps=int(lengths[0]) - 1)}, "are of 128 words"),
        ({"layout": changed(tile_code=0)}, "a tile has an index and a code"),
        (
            {"layout": changed(schedule=1, tile_code=0, tile_index=0)},
            "a schedule is .lists, entries, 4. and comes with fragments",
        ),
        (
            {"layout": changed(heads=-1)},
            "a plan's layout is 11 numbers and 9 for each part, with a space between",
        ),
        ({"layout": plan.layout + " 1"}, "a plan's layout is 11 numbers"),
        ({"layout": ""}, "a plan's layout is 11 numbers"),
        ({"layout": changed(row_ptr=10**20)}, "a plan's layout is 11 numbers"),
        ({"buffer": plan.buffer.long()}, "a plan is one row of int32"),
        ({"buffer": plan.buffer[1:]}, "does not begin at a multiple of 16 bytes"),
        ({"layout": plan.layout + " 1" * 9}, "parts come with items and a schedule of 4 words"),
        (
            {"layout": apart.layout, "buffer": apart.buffer},
            "no implementation .cpu. of attention that takes parts is built",
        ),
        (
            {"layout": apart.layout, "buffer": apart.buffer, "impl": "v5_parts"},
            "no implementation 'v5_parts'",
        ),
        ({"layout": beyond, "buffer": apart.buffer}, "the parts are for other sizes"),
        ({"layout": of_four, "buffer": apart.buffer}, "the parts are for other sizes"),
        (
            {"impl": "auto", "q": (2, 2, 9, 32)},
            'unsupported: impl "auto" before an implementation was chosen',
        ),
        ({"impl": "auto=v9_none"}, "unsupported: no implementation 'v9_none'"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call(**arguments)


def test_auto_is_what_was_chosen_for_calls_alike():
    """The operator remembers a choice by sizes, strides, dtypes, bias, plan and sign of the scale, on the
    thread that made it."""
    attention(make(Q), make(K), make(K))
    operator, q, k, plan = (
        torch.ops.fusescope.attention,
        torch.randn(Q),
        torch.randn(K),
        prepare(masks.load("causal"), 9, 11),
    )
    given = (plan.buffer, plan.layout, 0.375)
    chosen = operator(q, k, k, "auto=cpu", *given)
    assert torch.equal(operator(q + 0, k + 0, k + 0, "auto", *given), chosen)
    assert torch.equal(operator(q, k, k, "cpu", *given), chosen)
    other = prepare(masks.load("sliding_window", left=2, right=1), 9, 11)
    for unlike in (
        (q[:, :2], k, k, "auto", *given),
        (q.transpose(2, 3).contiguous().transpose(2, 3), k, k, "auto", *given),
        (q.half(), k.half(), k.half(), "auto", *given),
        (q, k, k, "auto", other.buffer, other.layout, 0.375),
        (q, k, k, "auto", *given[:2], -0.375),
        (q, k, k, "auto", *given, torch.zeros(9, 11)),
    ):
        with pytest.raises(RuntimeError, match='impl "auto" before an implementation was chosen'):
            operator(*unlike)


def test_what_was_checked_once_is_not_taken_for_something_else():
    """A second call of the same signature skips the checks in Python; whatever changes the signature or needs
    a gradient does not."""
    q, k, bias = torch.randn(Q), torch.randn(K), torch.randn(9, 11)
    plan, causal = prepare(masks.load("causal"), 9, 11), masks.load("causal")
    for _ in range(2):
        for mask in (None, plan, causal):
            expected = attention(q, k, k, plan if mask is not None else None)
            assert torch.equal(attention(q, k, k, mask), expected)
            assert torch.equal(attention(q, k, k, mask, bias=torch.zeros(9, 11)), expected)
        assert torch.equal(
            attention(q, k, k, plan, bias=bias, scale=0.5),
            attention(q, k, k, plan, bias=bias[None, None], scale=0.5),
        )
    for change, error in (
        ((q.requires_grad_(), k, k), Unsupported),
        ((q.detach(), k, k.half()), TypeError),
        ((q.detach(), k, k[:, :, :10]), ValueError),
        ((q.detach()[:, :3], k, k), ValueError),
        ((q.detach(), k.to("meta"), k), ValueError),
        ((q.detach(), None, k), TypeError),
        ((q.detach().to("meta"), k.to("meta"), k.to("meta")), ValueError),
    ):
        with pytest.raises(error):
            attention(*change, plan)
    with pytest.raises(Unsupported, match="bias requires a gradient"):
        attention(q.detach(), k, k, plan, bias=bias.requires_grad_())
    keep = torch.zeros(9, 11, dtype=torch.bool)
    assert not attention(q.detach(), k, k, keep).any()
    keep[:] = True  # the same tensor with other values
    assert torch.equal(attention(q.detach(), k, k, keep), attention(q.detach(), k, k))
