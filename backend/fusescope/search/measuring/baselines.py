"""What a scheme is compared with: the unfused layer, torch.compile of the whole in two forms, and our layer
as fused by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusescope.core.errors import Unsupported
from fusescope.search import encoding, runtime
from fusescope.search.measuring import inputs, segments
from fusescope.search.scheme import codegen, unfused
from fusescope.search.scheme.setting import Setting

HAND_FUSED = encoding.encode(True, {1, 7, 8, 10, 12, 13})
"""The scheme that the hand-written layer follows: GEMM + bias, attention, GEMM, bias + residual + LayerNorm,
GEMM, bias + GELU or both in one, GEMM, bias + residual + LayerNorm."""

BASELINES = {
    "unfused": "the 15 operators as 15 calls of PyTorch functions",
    "compile": "torch.compile of the 15 operators as one function",
    "compile_sdpa": "torch.compile of the layer as one writes it, with scaled_dot_product_attention",
    "hand_fused": "our kernels where there are such, as fused by hand",
}


def make(
    name: str, setting: Setting, values: Mapping[str, Any], shared: segments.Segments
) -> Callable[[], Any]:
    """A call of the baseline without arguments. ValueError for an unknown name, Unsupported where the setting
    compiles nothing, SegmentError where a segment of it failed."""
    if name not in BASELINES:
        raise ValueError(f"a baseline is one of {', '.join(BASELINES)}, not {name!r}")
    if name == "unfused":
        return lambda: unfused.run(values)["out"]
    if name.startswith("compile") and setting.compiler == "none":
        raise Unsupported("nothing is compiled in this setting (compiler none)")
    given = inputs.arguments(values)
    if name == "compile_sdpa":
        return _with_sdpa(setting, given)
    layer = segments.scheme(
        HAND_FUSED if name == "hand_fused" else encoding.encode(False, ()), setting, shared
    )
    return lambda: layer(**given)


def plan(name: str, setting: Setting) -> list[codegen.Segment]:
    """The segments that a baseline needs."""
    code = {"hand_fused": HAND_FUSED, "compile": encoding.encode(False, ())}.get(name)
    return (
        codegen.plan(code, setting) if code and not (name == "compile" and setting.compiler == "none") else []
    )


def _with_sdpa(setting: Setting, v: Mapping[str, Any]) -> Callable[[], Any]:
    from torch.nn import functional as F

    heads, width = setting.heads, setting.head_dim

    def layer(x, mask, weights):
        qkv = F.linear(x, weights["qkv_weight"], weights["qkv_bias"])
        q, k, v = qkv.view(*x.shape[:2], 3, heads, width).permute(2, 0, 3, 1, 4).unbind(0)
        merged = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        total = F.linear(merged, weights["attention_weight"], weights["attention_bias"]) + x
        attended = F.layer_norm(
            total, x.shape[-1:], weights["norm1_weight"], weights["norm1_bias"], unfused.EPS
        )
        inner = F.gelu(F.linear(attended, weights["ffn1_weight"], weights["ffn1_bias"]))
        total = F.linear(inner, weights["ffn2_weight"], weights["ffn2_bias"]) + attended
        return F.layer_norm(total, x.shape[-1:], weights["norm2_weight"], weights["norm2_bias"], unfused.EPS)

    function = runtime.compiled(layer)
    weights = {n: t for n, t in v.items() if n.endswith(("_weight", "_bias"))}
    return lambda: function(v["x"], v["mask"], weights)
