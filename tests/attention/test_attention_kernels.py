"""Every attention kernel that this machine runs, against the float64 reference, for every mask and awkward
input."""

import pytest
import torch

from fusescope import masks
from fusescope.core.errors import Unsupported
from fusescope.ops.attention import attention, prepare
from tests.attention.attention_tools import (
    MASKS,
    OP,
    SIZES,
    case,
    fits,
    kernels,
    mask_text,
    run,
    skip_unsupported,
    wrong,
)

DTYPES = ("float32", "float16", "bfloat16")
each_kernel = pytest.mark.parametrize("impl, device", kernels())


@pytest.mark.slow
@each_kernel
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MASKS)
def test_every_mask_at_odd_sizes(impl, device, dtype, name):
    """Each mask and size with both layouts, by turns among the dtypes; each dtype with both, by turns among
    the sizes."""
    checked = 0
    for number, (seq, seq_k) in enumerate(SIZES, DTYPES.index(dtype)):
        mask = mask_text(name, 2, seq_k)
        if not fits(mask, seq, seq_k):
            continue
        contiguous = number % 2 == 0
        values = case(seq, seq_k, mask, head_dim=40, kv_heads=1)
        assert run(impl, device, values, dtype, checked, contiguous) is None, (seq, seq_k, contiguous)
        checked += 1
    assert checked >= 4


@pytest.mark.slow
@each_kernel
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", (32, 40, 64, 72, 96, 104, 128, 136, 160, 192, 200, 256))
def test_head_sizes(impl, device, dtype, head_dim):
    for mask in ("full", "sliding_window:left=30,right=40"):
        assert run(impl, device, case(70, 150, mask, head_dim=head_dim), dtype) is None


@each_kernel
@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_and_groups(impl, device, dtype):
    """Each pair of groups, mask, dtype and layout."""
    number = DTYPES.index(dtype)
    for heads, kv_heads in ((4, 4), (4, 2), (6, 1)):
        for mask in ("full", "causal", "random:density=0.05"):
            values = case(70, 100, mask, heads=heads, kv_heads=kv_heads, bias="head")
            assert run(impl, device, values, dtype, 3, number % 2 == 0) is None, (values, number)
            number += 1


@each_kernel
@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_of_every_broadcast_shape(impl, device, dtype):
    inputs = OP.inputs(case(40, 70, "causal", heads=3), dtype, device, 0)
    for shape in ((2, 3, 40, 70), (1, 3, 40, 70), (2, 1, 1, 70), (3, 40, 1), (40, 70), (70,), ()):
        for kind in (inputs["q"].dtype, torch.float32):
            bias = torch.randn(shape, device=device).to(kind)
            out = _call(inputs, impl, inputs["plan"], bias)
            assert wrong(out, inputs | {"bias": bias.expand(2, 3, 40, 70)}, dtype) is None, shape


@each_kernel
def test_bool_masks_of_every_broadcast_shape(impl, device):
    inputs = OP.inputs(case(70, 130, heads=3), "float16", device, 0)
    generator = torch.Generator().manual_seed(0)
    for shape in (
        (2, 3, 70, 130),
        (2, 1, 70, 130),
        (1, 3, 70, 130),
        (2, 1, 1, 130),
        (3, 70, 1),
        (70, 130),
        (130,),
        (),
    ):
        keep = (torch.rand(shape, generator=generator) < 0.4).to(device)
        full = keep.expand(2, 3, 70, 130)
        expected = torch.stack(
            [
                OP.reference(_slice(inputs, b, h) | {"mask": masks.from_dense(full[b, h].cpu().numpy())})
                for b in range(2)
                for h in range(3)
            ]
        ).view(2, 3, 70, 32)
        for mask in (keep, prepare(keep, 70, 130, device)):
            out = _call(inputs, impl, mask, None)
            assert torch.allclose(out.double(), expected, rtol=2e-3, atol=2e-3), shape
            assert bool((out[~full.any(-1)] == 0).all())


@each_kernel
@pytest.mark.parametrize("stride", (2, 3, 4, 8, 16))
def test_keys_by_a_stride(impl, device, stride):
    """Where the kernel of the processor takes rows and keys of a tile in strided-permuted order."""
    text = f"dilated:window=30,dilation={stride}"
    assert run(impl, device, case(130, 265, text, batch=2, heads=4, kv_heads=2), "float16") is None
    inputs = OP.inputs(case(150, 70, heads=2), "float16", device, 0)
    rows, columns = torch.arange(150)[:, None], torch.arange(70)
    keep = (
        torch.stack([(rows - columns) % stride == h for h in range(2)])[None].expand(2, -1, -1, -1).to(device)
    )
    got = _call(inputs, impl, keep, None)
    for h in range(2):
        one = inputs | {name: inputs[name][:, h : h + 1] for name in "qkv"}
        reference = OP.reference(one | {"mask": masks.from_dense(keep[0, h].cpu().numpy())})
        assert torch.allclose(got[:, h : h + 1].double(), reference, rtol=2e-3, atol=2e-3)


@each_kernel
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_without_a_key_are_zeros(impl, device, dtype):
    causal = OP.inputs(case(130, 33, "causal"), dtype, device, 0)
    assert bool((_call(causal, impl, causal["plan"], None)[:, :, : 130 - 33] == 0).all())
    empty = torch.zeros(33, dtype=torch.bool, device=device)
    assert bool((_call(causal, impl, empty, None) == 0).all())
    minus = torch.full((33,), float("-inf"), device=device)
    assert bool((_call(causal, impl, None, minus) == 0).all())


@each_kernel
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_scores_do_not_overflow(impl, device, dtype):
    """Scores of 100 and more: exp of them is infinite without the maximum. Their rounding errors are as much
    larger as they are."""
    inputs = OP.inputs(case(70, 130, "causal", head_dim=64), dtype, device, 0)
    inputs["q"] *= 30
    allowed = 30 * OP.TOLERANCE[dtype].absolute if dtype == "float32" else OP.TOLERANCE[dtype].absolute
    for mask in (masks.load("causal"), masks.load("full")):
        out = _call(inputs, impl, prepare(mask, 70, 130, device), None)
        torch.testing.assert_close(
            out.double(), OP.reference(inputs | {"mask": mask}), atol=allowed, rtol=allowed
        )


@each_kernel
def test_scale_may_be_anything(impl, device):
    inputs = OP.inputs(case(33, 65, "causal", head_dim=32), "float16", device, 0)
    for factor in (0.0, -1.0, 0.25):
        scaled = inputs | {"q": inputs["q"] * factor}
        positive_only = impl in ("v4_scheduled", "v5_parts", "v6_triples") and factor <= 0
        if positive_only:
            with pytest.raises(Unsupported, match="scale that is not positive"):
                attention(inputs["q"], inputs["k"], inputs["v"], inputs["plan"], scale=factor, impl=impl)
        taken = "auto" if positive_only else impl
        out = attention(
            inputs["q"], inputs["k"], inputs["v"], inputs["plan"], scale=factor * 32**-0.5, impl=taken
        )
        assert wrong(out, scaled, "float16") is None


@each_kernel
@pytest.mark.parametrize("dtype", DTYPES)
def test_error_is_at_most_twice_that_of_sdpa(impl, device, dtype):
    for mask in ("full", "longformer:window=20,global_tokens=5"):
        inputs = OP.inputs(case(200, 200, mask, head_dim=64), dtype, device, 1)
        reference = OP.reference(inputs)
        ours = (_call(inputs, impl, inputs["plan"], None).double() - reference).abs().max()
        theirs = (OP.PEERS["sdpa"].make(inputs)().double() - reference).abs().max()
        assert ours <= 2 * theirs + 1e-7


@each_kernel
@pytest.mark.parametrize("dtype", DTYPES)
def test_output_that_the_next_projection_reads_without_a_copy(impl, device, dtype):
    """The same bits in (B, S, H, D) order, by the long way, the short one, and with a bias; nothing beside
    the result is written."""
    for seq, seq_k, head_dim in ((70, 130, 64), (200, 200, 40), (130, 33, 128), (64, 64, 256)):
        inputs = OP.inputs(case(seq, seq_k, "causal", heads=3, head_dim=head_dim), dtype, device, 0)
        with skip_unsupported(device):
            expected = attention(inputs["q"], inputs["k"], inputs["v"], inputs["plan"], impl=impl)
            for _ in range(2):
                out = attention(
                    inputs["q"], inputs["k"], inputs["v"], inputs["plan"], impl=impl, out_bshd=True
                )
                rows = out.transpose(1, 2).reshape(2, seq, 3 * head_dim)
                assert rows.data_ptr() == out.data_ptr() and rows.is_contiguous()
                assert torch.equal(out, expected)


@each_kernel
def test_strange_strides(impl, device):
    plain = OP.inputs(case(40, 70, "causal", head_dim=40), "float16", device, 0)
    expanded = plain | {
        "k": plain["k"][:, :1].expand(-1, 2, -1, -1),
        "v": plain["v"][:1].expand(2, -1, -1, -1),
    }
    columns = plain | {name: plain[name].transpose(2, 3).contiguous().transpose(2, 3) for name in "qkv"}
    every_second = plain | {name: torch.stack([plain[name]] * 2, -1).flatten(-2)[..., ::2] for name in "qkv"}
    for inputs in (expanded, columns, every_second):
        assert wrong(_call(inputs, impl, inputs["plan"], None), inputs, "float16") is None


def _call(inputs, impl, mask, bias):
    with skip_unsupported(inputs["q"].device.type):
        return attention(inputs["q"], inputs["k"], inputs["v"], mask, bias=bias, impl=impl)


def _slice(inputs, b, h):
    return inputs | {name: inputs[name][b : b + 1, h : h + 1] for name in "qkv"}
