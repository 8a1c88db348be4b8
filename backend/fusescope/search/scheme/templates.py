"""Hand-written kernels for segments: which operators each replaces, and the lines that call it. One entry a
kernel.

An entry says what a generated module imports and the lines of the segment's function; the names are those of
layer.VALUES.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusescope.search.encoding import ATTENTION


@dataclass(frozen=True)
class Template:
    """operators: exactly the segment it replaces. needs_bit: only where bit 0 of the code is set. lines:
    (operators that the line does, line of Python); extra: arguments next to the tensors that flow in."""

    name: str
    operators: range
    imports: str
    lines: tuple[tuple[tuple[int, ...], str], ...]
    needs_bit: bool = False
    extra: tuple[str, ...] = ()


_LINEAR = "from fusescope.ops.layer.linear import linear"
TEMPLATES = (
    Template("linear", range(0, 2), _LINEAR, (((0, 1), "qkv = linear(x, qkv_weight, qkv_bias)"),)),
    Template(
        "linear",
        range(8, 10),
        _LINEAR,
        (((8, 9), "attention_sum = linear(merged, attention_weight, attention_bias, residual=x)"),),
    ),
    Template(
        "linear",
        range(11, 13),
        _LINEAR,
        (((11, 12), 'intermediate = linear(attended, ffn1_weight, ffn1_bias, "gelu")'),),
    ),
    Template(
        "attention",
        ATTENTION,
        "from fusescope.ops.attention import attention",
        (
            (
                (2,),
                "q, k, v = qkv.view(*qkv.shape[:2], 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4).unbind(0)  "
                "# views",
            ),
            ((3, 4, 5, 6), "context = attention(q, k, v, plan, out_bshd=True)  # heads side by side"),
            ((7,), "merged = context.transpose(1, 2).flatten(2)  # a view"),
        ),
        needs_bit=True,
        extra=("plan",),
    ),
    Template(
        "bias_residual_layernorm",
        range(9, 11),
        "from fusescope.ops.layer.bias_residual_layernorm import bias_residual_layernorm",
        (
            (
                (9, 10),
                "attended = bias_residual_layernorm(attention_product, attention_bias, x, norm1_weight, "
                "norm1_bias, EPS)",
            ),
        ),
    ),
    Template(
        "bias_residual_layernorm",
        range(14, 15),
        "from fusescope.ops.layer.bias_residual_layernorm import bias_residual_layernorm",
        (
            (
                (14,),
                "out = bias_residual_layernorm(ffn2_product, ffn2_bias, attended, norm2_weight, "
                "norm2_bias, EPS)",
            ),
        ),
    ),
    Template(
        "bias_gelu",
        range(12, 13),
        "from fusescope.ops.layer.bias_gelu import bias_gelu",
        (((12,), "intermediate = bias_gelu(ffn1_product, ffn1_bias)"),),
    ),
)


def match(operators: range, attention: bool) -> Template | None:
    """The template for exactly these operators, if there is one; ``attention``: bit 0 of the code."""
    return next((t for t in TEMPLATES if t.operators == operators and (attention or not t.needs_bit)), None)
