"""Which cases every operator is tried on: odd sizes in every dimension, found from its parameters."""

from __future__ import annotations

from fusescope import ops

SIZES = (1, 7, 33, 1000)
DIAGONAL = {
    "gemm": ("m", "n", "k"),
    "softmax": ("rows", "cols"),
    "layernorm": ("rows", "cols"),
    "bias_residual_layernorm": ("rows", "cols"),
    "bias_gelu": ("rows", "cols"),
    "rmsnorm_residual": ("rows", "cols"),
    "swiglu": ("rows", "cols"),
}
"""Dimensions that are also given the odd sizes all at once."""

EIGHT_BIT = ("linear_weight_only", "attention_fp8")
"""Operators with operands of other dtypes than the case's; what they read is in their own tests."""

GATHERS = ("padding", "embedding_layernorm", "rope_cache", "attention_decode", "decoder_layers")
"""Operators that read only some rows of an operand, or none; what these are is in their own tests."""

SIXTEEN_BITS_ON_A_GPU = ("decoder_layers",)
"""Operators whose CUDA kernels refuse float32, which their CPU kernel takes."""

SMALL = {
    "rope_cache": {"seq_max": 40},
    "embedding_layernorm": {"vocab": 997},
    "decoder_layers": {"layers": 2, "width": 64, "heads": 2, "head_dim": 32, "ffn": 64},
}
"""Sizes that are not swept and too large by default."""

EXTRA = {
    "gemm": [{"m": 130, "n": 257, "k": 64}, {"m": 64, "n": 72, "k": 520}],
    "bmm": [
        {"batch_a": "2x1", "batch_b": "3", "m": 7, "n": 33, "k": 9},
        {"batch_a": "none", "batch_b": "2x3", "m": 33, "n": 8, "k": 16},
        {"batch_a": "2x3", "batch_b": "none", "m": 5, "n": 64, "k": 40},
        {"batch_a": "2x1x2", "batch_b": "1x3x1", "m": 1, "n": 1, "k": 7},
    ],
    "softmax": [{"rows": 3, "cols": c} for c in (8, 300, 1024, 1536, 4096, 5000, 16384, 32768, 70001)],
    "layernorm": [{"rows": 3, "cols": c} for c in (8, 300, 1024, 1536, 4096, 5000, 16384, 32768, 70001)],
    "bias_residual_layernorm": [
        {"rows": 3, "cols": c} for c in (8, 72, 300, 768, 1024, 1536, 4096, 16384, 32768, 70001)
    ]
    + [{"rows": 2500, "cols": 72}],
    "linear": [
        {"rows": 9, "inputs": 40, "outputs": 24, "activation": activation, "residual": residual}
        for activation in ("none", "gelu", "gelu_tanh")
        for residual in ("no", "yes")
    ]
    + [
        {"rows": 65, "inputs": 33, "outputs": 7, "activation": "gelu", "residual": "yes"},
        {"rows": 257, "inputs": 768, "outputs": 384, "activation": "gelu_tanh"},
        {"rows": 300, "inputs": 384, "outputs": 768, "activation": "gelu", "residual": "yes"},
        {"rows": 2100, "inputs": 200, "outputs": 1096, "activation": "gelu"},
        {"rows": 129, "inputs": 3080, "outputs": 200, "residual": "yes"},
    ],
    "linear_weight_only": [
        {
            "rows": rows,
            "inputs": inputs,
            "outputs": outputs,
            "weight": weight,
            "activation": activation,
            "residual": residual,
        }
        for weight in ("int8", "fp8")
        for rows, inputs, outputs, activation, residual in (
            (3, 40, 24, "none", "yes"),
            (16, 528, 130, "gelu", "no"),
            (17, 33, 7, "gelu_tanh", "yes"),
            (70, 2048, 96, "none", "no"),
        )
    ],
    "attention_fp8": [
        {"batch": 2, "heads": 2, "kv_heads": 1, "head_dim": head_dim, "quantised": quantised} | options
        for head_dim, quantised in ((64, "before"), (128, "inside"))
        for options in (
            {"seq": 150, "seq_k": 230, "mask": "causal"},
            {"seq": 130, "mask": "bigbird"},
            {"seq": 70, "seq_k": 40, "mask": "causal"},
            {"seq": 65, "seq_k": 1300},
        )
    ],
    "attention_decode": [
        {"batch": 3, "heads": 4, "kv_heads": 2, "seq_max": 96, "head_dim": 40, "lengths": lengths} | options
        for lengths, options in (
            ("40+96+1", {"tokens": 3}),
            ("0+5+96", {"tokens": 8, "sinks": "yes"}),
            ("full", {"page": "32"}),
            ("drawn", {"window": 7, "tokens": 2, "page": "16"}),
            ("96+1+64", {"softcap": 3.0, "page": "16", "window": 20, "sinks": "yes", "tokens": 4}),
            ("96+5+40", {"alibi": "yes", "tokens": 2, "page": "16"}),
            ("96+64+80", {"bias": "head", "softcap": 3.0, "tokens": 3}),
            ("drawn", {"kv_dtype": "fp8", "alibi": "yes", "bias": "head", "window": 30}),
            ("96+5+40", {"kv_dtype": "fp8"}),
            ("drawn", {"kv_dtype": "fp8", "page": "32", "window": 30, "tokens": 2, "sinks": "yes"}),
        )
    ],
    "decoder_layers": [
        {"layer": layer, "batch": batch, "layers": 3, "heads": heads, "kv_heads": 2, "head_dim": head_dim}
        | {"width": width, "ffn": 160, "cached": 70, "weights": weight}
        for layer in ("gpt2", "llama", "qwen3")
        for batch, heads, head_dim, width in ((1, 2, 64, 128), (3, 4, 64, 96), (8, 6, 128, 256))
        for weight in ("as x", "int8", "fp8")
    ],
    "embedding_layernorm": [
        {"batch": 3, "seq": 7, "cols": cols, "vocab": vocab}
        for cols, vocab in ((8, 1), (72, 50), (768, 1000), (1030, 9), (5000, 7))
    ],
    "padding": [
        {"batch": 5, "seq": 33, "cols": cols, "mean": mean, "direction": direction}
        for cols, mean in ((8, 60), (7, 20), (72, 100))
        for direction in ("pack", "unpack")
    ],
    "split_heads": [
        {"batch": 2, "seq": 7, "heads": 4, "kv_heads": 2, "head_dim": 8},
        {"batch": 3, "seq": 5, "heads": 2, "kv_heads": 2, "head_dim": 9},
        {"batch": 5, "seq": 129, "heads": 12, "head_dim": 64},
    ],
    "rmsnorm_residual": [
        {"rows": 3, "cols": c, "residual": residual}
        for c, residual in (
            (128, "no"),
            (300, "yes"),
            (4096, "yes"),
            (5000, "no"),
            (16384, "yes"),
            (70001, "yes"),
        )
    ],
    "swiglu": [
        {"rows": 3, "cols": c, "layout": layout} for c in (72, 3000) for layout in ("packed", "apart")
    ],
    "rope_cache": [
        {"batch": 3, "tokens": 1, "heads": 4, "kv_heads": 2, "head_dim": 128, "seq_max": 33},
        {"batch": 2, "tokens": 7, "heads": 3, "head_dim": 80, "seq_max": 50, "page": "16"},
        {"batch": 1, "tokens": 33, "heads": 8, "kv_heads": 2, "head_dim": 10, "seq_max": 300, "page": "256"},
    ],
    "bias_gelu": [{"rows": 3, "cols": 72, "approximate": form} for form in ("none", "tanh")]
    + [{"rows": 301, "cols": 3072}, {"rows": 33, "cols": 33, "approximate": "tanh"}],
}


GPU_ONLY = 8192
"""Longer rows, and products of more than 2^28 FLOP, are for GPU kernels that hold them in another way."""


def cases(op: str, device: str = "cuda") -> list[dict]:
    """Complete cases: each parameter worth sweeping at each odd size with the others small, the diagonals,
    and the extra ones."""
    module = ops.load(op)
    swept = [p for p in module.PARAMETERS if p.sweep and p.kind == "int"]
    wanted = [
        SMALL.get(op, {}) | {p.name: p.low or 1 for p in swept} | {p.name: size}
        for p in swept
        for size in SIZES
        if p.low <= size <= p.high
    ]
    wanted += [dict.fromkeys(DIAGONAL[op], size) for size in SIZES] if op in DIAGONAL else []
    wanted += EXTRA.get(op, [])
    found = []
    for values in wanted:
        try:
            complete = module.validate(values)
        except ValueError:  # a size that this operator refuses, such as a head size that is no multiple of 8
            continue
        if complete not in found:
            found.append(complete)
    return found if device != "cpu" else [c for c in found if _small(op, c)]


def _small(op: str, values: dict) -> bool:
    return (
        values.get("cols", 0) <= GPU_ONLY and ops.load(op).cost(values, "float32").flop_effective <= 1 << 28
    )
