"""Runs the CUDA kernels of packed attention on the CPU by the emulator and prints what is wrong, a JSON line
a case.

A process of its own, because the library defines the operator a second time: python -m
tests.attention.emulated_varlen
"""

from __future__ import annotations

import json

import torch

from tests.attention.varlen_tools import make, wrong
from tests.emulator import build

KERNELS = {
    "v1_rowwise": ("float32", "bfloat16"),
    "v2_blockwise": ("float16", "bfloat16"),
    "v3_hopper": ("float16", "bfloat16"),
}
"""With the dtypes to try. EMULATED_SMS=1 makes v3 take two warpgroups a block from some 128 rows and heads
on."""

CASES = (
    {"queries": (1,), "keys": (1,)},
    {"queries": (65, 0, 3, 130), "keys": (65, 0, 3, 130), "causal": True},
    {"queries": (5, 70, 1), "keys": (80, 20, 0), "heads": (2, 1), "dim": 40, "causal": True},
    {"queries": (3, 66), "keys": (100, 7), "heads": (3, 1), "dim": 64, "more": 7},
    {"queries": (1,) * 45 + (20,), "keys": (2,) * 45 + (70,), "dim": 96, "causal": True},
    {"queries": (0, 64, 33), "keys": (9, 128, 65), "dim": 128},
    {"queries": (17,), "keys": (70,), "dim": 136, "causal": True},
    {"queries": (20, 3), "keys": (5, 66), "dim": 256},
)
LONGER = (
    {"queries": (200, 90), "keys": (330, 100), "dim": 64, "causal": True, "more": 2},
    {"queries": (150, 3), "keys": (90, 200), "dim": 128},
)
"""For v3: blocks of two warpgroups that stop at different tiles."""


def cases(impl: str):
    return CASES + (LONGER if impl == "v3_hopper" else ())


def main() -> None:
    torch.ops.load_library(build({"attention_varlen": tuple(KERNELS)}))
    for impl, dtypes in KERNELS.items():
        for number, values in enumerate(cases(impl)):
            dtype, strided = dtypes[number % 2], number % 3 == 0 and impl != "v3_hopper"
            case = make(**values, dtype=dtype, strided=strided)
            out = torch.ops.fusescope.attention_varlen(*case.args, case.causal, case.scale, impl)
            print(
                json.dumps({"impl": impl, "dtype": dtype, "case": values, "wrong": wrong(out, case, dtype)}),
                flush=True,
            )


if __name__ == "__main__":
    main()
