"""Runs the CUDA kernels of decode on the CPU by the emulator and prints what is wrong, a JSON line a case.

A process of its own, because the library defines the operator a second time: python -m
tests.attention.emulated_decode EMULATED_SMS says how many multiprocessors share the work: few give long
shares, many give parts to join.
"""

from __future__ import annotations

import json
import math

import torch

from fusescope import ops
from fusescope.measure.checking.check import compare
from tests.emulator import build

KERNELS = {"v1_warp_keys": ("float32", "float16"), "v2_tensor_core": ("float16", "bfloat16")}

CASES = (
    {"batch": 1, "heads": 1, "seq_max": 1},
    {"batch": 3, "heads": 4, "kv_heads": 2, "seq_max": 300, "lengths": "300+0+65"},
    {"batch": 2, "heads": 12, "kv_heads": 1, "seq_max": 130, "head_dim": 40, "lengths": "1+130"},
    {
        "batch": 40,
        "heads": 1,
        "seq_max": 3,
        "head_dim": 64,
        "lengths": "+".join(str(i % 4) for i in range(40)),
    },
    {"batch": 1, "heads": 20, "kv_heads": 1, "seq_max": 200, "head_dim": 96},
    {"batch": 2, "heads": 8, "kv_heads": 4, "seq_max": 400, "head_dim": 128, "lengths": "399+17"},
    {"batch": 1, "heads": 3, "kv_heads": 3, "seq_max": 100, "head_dim": 136},
    {"batch": 2, "heads": 2, "kv_heads": 1, "seq_max": 66, "head_dim": 256, "lengths": "0+66"},
    {"batch": 2, "heads": 1, "seq_max": 9, "lengths": "0+0"},
)


def main() -> None:
    torch.ops.load_library(build({"attention_decode": tuple(KERNELS)}))
    op = ops.load("attention_decode")
    for impl, dtypes in KERNELS.items():
        for number, values in enumerate(CASES):
            dtype, contiguous = dtypes[number % 2], number % 3 != 0
            values = op.validate({"head_dim": 32} | values)
            inputs = op.inputs(values, dtype, "cpu", number, contiguous)
            reference = op.reference(inputs)
            for i, n in enumerate(
                inputs["lengths"].tolist()
            ):  # whatever reads beyond a length spoils its result
                for cache in (inputs["k"], inputs["v"]):
                    cache[i, :, n:] = math.nan
            out = torch.ops.fusescope.attention_decode(
                *op.arguments(inputs)[0], values["head_dim"] ** -0.5, impl
            )
            wrong = compare(out, reference, op.tolerance(values, dtype)).reason
            print(json.dumps({"impl": impl, "dtype": dtype, "case": values, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main()
