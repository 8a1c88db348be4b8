"""Runs CUDA kernels of attention on the CPU by the emulator and prints what is wrong, a JSON line a case.

A process of its own, because the library defines the operator a second time: python -m
tests.attention.emulated_attention
"""

from __future__ import annotations

import json

import torch

from tests.attention.attention_tools import OP, case, wrong
from tests.emulator import build

KERNELS = {
    "v1_rowwise": ("float32", "bfloat16"),
    "v2_blockwise": ("float16", "bfloat16"),
    "v2_blockwise_fp32": ("float32", "float16"),
}
"""Those made of warp instructions only, with the dtypes to try."""

CASES = (
    {"seq": 1},
    {"seq": 33, "seq_k": 200, "mask": "causal", "bias": "head", "heads": 2, "kv_heads": 1},
    {"seq": 130, "seq_k": 65, "mask": "causal"},
    {"seq": 70, "seq_k": 130, "mask": "random:density=0.03", "head_dim": 40},
    {"seq": 65, "mask": "sliding_window:left=9,right=3", "head_dim": 96},
    {"seq": 70, "mask": "document:lengths=20+40", "head_dim": 128},
    {"seq": 65, "seq_k": 130, "mask": "padding:lengths=66", "head_dim": 136},
    {"seq": 17, "seq_k": 70, "head_dim": 256},
)


def main() -> None:
    torch.ops.load_library(build({"attention": tuple(KERNELS)}))
    for impl, dtypes in KERNELS.items():
        for number, values in enumerate(CASES):
            dtype, contiguous = dtypes[number % 2], number % 3 != 0
            values = case(**({"batch": 1, "heads": 1} | values))
            inputs = OP.inputs(values, dtype, "cpu", number, contiguous)
            plan = inputs["plan"]
            given = (plan.buffer, plan.layout, None, inputs["bias"])
            out_bshd = number % 4 > 1
            out = torch.ops.fusescope.attention(inputs["q"], inputs["k"], inputs["v"], impl, *given, out_bshd)
            lies = (out.transpose(1, 2) if out_bshd else out).is_contiguous()
            found = wrong(out.contiguous(), inputs, dtype) if lies else f"strides {out.stride()}"
            print(
                json.dumps(
                    {"impl": impl, "dtype": dtype, "case": values, "out_bshd": out_bshd, "wrong": found}
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
