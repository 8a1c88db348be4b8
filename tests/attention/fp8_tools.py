"""What tests of attention_fp8 share, emulated or not: operands that single out one thing, and what must
come of them.

Each function takes (impl, dtype, device) and gives what is wrong, or None.
"""

from __future__ import annotations

import torch

from fusescope import masks
from fusescope.measure.checking.check import compare
from fusescope.ops.attention.fp8 import attention_fp8, quantise_fp8
from fusescope.ops.fused import attention_fp8 as OP


def drawn(dtype, device, seed=3, **values):
    """(complete case, its inputs, quantised in the call)."""
    case = OP.validate({"batch": 1, "heads": 2, "kv_heads": 1, "quantised": "inside"} | values)
    return case, OP.inputs(case, dtype, device, seed)


def in_e4m3(t):
    """The nearest numbers that e4m3 holds, in t's dtype."""
    return t.float().clamp(-448, 448).to(torch.float8_e4m3fn).to(t.dtype)


def unseen_nan(impl, dtype, device="cpu"):
    """A NaN or infinity of a key is NaN in all columns of the rows that see it, and nothing in the others."""
    for head_dim in (64, 128):
        case, given = drawn(dtype, device, seq=200, mask="causal", head_dim=head_dim)
        q, k, v = (given[n] for n in "qkv")
        right = OP.reference(given)
        k[0, 0, 150, 3], v[0, 0, 170, 5], q[0, 1, 20, 1] = float("nan"), float("inf"), float("nan")
        right[:, :, 150:], right[0, 1, 20] = float("nan"), float("nan")
        out = attention_fp8(q, k, v, given["plan"], impl=impl)
        if reason := compare(out, right, OP.tolerance(case, dtype)).reason:
            return f"head size {head_dim}: {reason}"
    return None


def growing_scores(impl, dtype, device="cpu"):
    """Scores that rise from key to key by up to 2^20 in 32 keys: references are raised at every step."""
    for head_dim, rise in ((64, 3.0), (128, 14.0), (128, 0.4)):
        case, given = drawn(dtype, device, seq=130, seq_k=400, head_dim=head_dim)
        q, k = given["q"], given["k"]
        q.fill_(1.0)
        steps = torch.arange(400, device=device) // 32 * (rise / head_dim**0.5)
        k.copy_(in_e4m3(steps[:, None].expand(400, head_dim)))
        out = attention_fp8(q, k, given["v"], given["plan"], impl=impl)
        if reason := compare(out, OP.reference(given), OP.tolerance(case | {"seq_k": 32}, dtype)).reason:
            return f"head size {head_dim}, by {rise}: {reason}"
    return None


def many_steps(impl, dtype, device="cpu"):
    """More steps than are added up together, twice; values of one sign."""
    case, given = drawn(dtype, device, seq=65, seq_k=64 * 34 + 7, head_dim=128, mask="causal")
    given["v"].copy_(in_e4m3(given["v"] + 4))
    out = attention_fp8(given["q"], given["k"], given["v"], given["plan"], impl=impl)
    return compare(out, OP.reference(given), OP.tolerance(case | {"seq_k": 1024}, dtype)).reason


def rotated(impl, dtype, device="cpu"):
    """With a rotation: scores stay, but for rounding q and k again (see error_of)."""
    for head_dim in (64, 128):
        _, given = drawn(dtype, device, seq=130, seq_k=200, head_dim=head_dim)
        q, k, v = (given[n] for n in "qkv")
        found = relative_error(attention_fp8(q, k, v, rotate=True, impl=impl), OP.reference(given))
        if not found < 0.06:
            return f"head size {head_dim}: off by {found:.3f}"
    return None


def exact(impl, dtype, device="cpu"):
    """Numbers of e4m3 times a power of two come through quantising as they are: one key for each row,
    whose value is the result."""
    for head_dim in (64, 128):
        numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
        numbers = numbers[numbers.isfinite()].repeat(200)[: 200 * head_dim] / 64
        v = numbers.view(1, 1, 200, head_dim).to(device, getattr(torch, dtype))
        q = torch.ones(1, 1, 200, head_dim, device=device, dtype=v.dtype)
        diagonal = masks.from_dense(torch.eye(200, dtype=torch.bool).numpy())
        out = attention_fp8(q, q, v, diagonal, impl=impl)
        if not bool((out == v).all()):
            n = int((out != v).flatten().nonzero()[0])
            return f"head size {head_dim}: {float(v.flatten()[n])} came out as {float(out.flatten()[n])}"
    return None


def relative_error(out, right) -> float:
    return float((out.double() - right).norm() / right.norm())


def with_outliers(device="cpu", head_dim=128, seq=1024):
    """Operands as in the study of FlashAttention-3 (arXiv 2407.08608, section 4.3): N(0, 1) + N(0, 100)
    at one in a thousand."""
    g = torch.Generator().manual_seed(11)
    shape = (1, 2, seq, head_dim)

    def one():
        often = torch.randn(shape, generator=g)
        rare = torch.randn(shape, generator=g) * 10 * (torch.rand(shape, generator=g) < 0.001)
        return (often + rare).half().to(device)

    return one(), one(), one()


def scales_are_powers_of_two(impl, dtype, device="cpu"):
    _, given = drawn(dtype, device, seq=100, head_dim=64)
    eights = quantise_fp8(given["q"], given["k"], given["v"], impl=impl)
    for name in ("q_scale", "k_scale", "v_scale"):
        if not bool((torch.frexp(getattr(eights, name).cpu())[0] == 0.5).all()):
            return f"{name} holds other numbers"
    return None


CHECKS = (unseen_nan, growing_scores, many_steps, rotated, exact, scales_are_powers_of_two)
