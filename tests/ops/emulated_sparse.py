"""Runs the CUDA kernels of the sparse operators on the CPU by the emulator and prints what is wrong, a JSON
line a case.

A process of its own, because the library defines the operators a second time: python -m
tests.ops.emulated_sparse
"""

from __future__ import annotations

import json
from functools import partial

import torch

from fusescope import ops
from fusescope.measure.checking.check import Case
from tests.emulator import build

KERNELS = {
    "sddmm": ("v1_warp_row", "v2_even_split", "v3_blocks"),
    "spmm": ("v1_warp_row", "v2_balanced", "v3_blocks"),
    "sparse_softmax": ("v1_warp_row",),
}

CASES = (
    {"seq": 1, "head_dim": 1, "mask": "full"},
    {
        "seq": 7,
        "seq_k": 100,
        "head_dim": 8,
        "mask": "random:density=0.4",
    },  # 280 elements: more than one run of a warp
    {"seq": 33, "head_dim": 64, "mask": "causal", "heads": 2},
    {"seq": 40, "seq_k": 9, "head_dim": 72, "mask": "random:density=0.02"},  # rows without elements
    {"seq": 5, "seq_k": 700, "head_dim": 40, "mask": "full"},  # rows that a block shares
    {"seq": 66, "head_dim": 128, "mask": "longformer:window=2,global_tokens=1"},
    {"seq": 3, "seq_k": 530, "head_dim": 200, "mask": "fixed:block=64,summary=63"},
    {"seq": 4, "seq_k": 6, "head_dim": 300, "mask": "full"},  # more than one panel
    {"seq": 20, "head_dim": 33, "mask": "sliding_window:left=3,right=0", "batch": 2, "heads": 3},
    {"seq": 6, "mask": "random:density=0.0", "head_dim": 16},
)

BLOCK_CASES = (
    {"seq": 20, "seq_k": 50, "head_dim": 40, "mask": "random:density=0.05", "format": "bsr16"},
    {"seq": 70, "seq_k": 33, "head_dim": 70, "mask": "causal", "format": "bsr32", "heads": 2},
    {"seq": 65, "seq_k": 130, "head_dim": 8, "mask": "sliding_window:left=3,right=3", "format": "bsr64"},
    {"seq": 33, "mask": "random:density=0.0", "head_dim": 16, "format": "bsr16"},
)


def main() -> None:
    torch.ops.load_library(build(KERNELS))
    torch.set_num_threads(1)
    for op, impls in KERNELS.items():
        module = ops.load(op)
        for number, values in enumerate((*CASES, *BLOCK_CASES) if op != "sparse_softmax" else CASES):
            for dtype, contiguous in (
                (module.DTYPES[number % 3], True),
                (module.DTYPES[(number + 1) % 3], number % 2 == 0),
            ):
                known = {p.name for p in module.PARAMETERS}
                values = {k: v for k, v in ({"batch": 1, "heads": 1} | values).items() if k in known}
                case = Case(module, module.validate(values), dtype, "cpu", number, contiguous)
                for impl in impls[2:] if "format" in values else impls[:2]:
                    reason = case.verify(partial(_call, op, case.inputs, impl)).reason
                    print(
                        json.dumps({"op": op, "impl": impl, "dtype": dtype, "case": values, "wrong": reason}),
                        flush=True,
                    )


def _call(op, given, impl):
    s = given["structure"]
    if op == "sddmm":
        return torch.ops.fusescope.sddmm(
            given["q"], given["k"], s.row_offsets, s.columns, s.row_of, s.bits, s.block, impl
        )
    if op == "sparse_softmax":
        return torch.ops.fusescope.sparse_softmax(given["values"], s.row_offsets, s.order, 1.0, impl)
    return torch.ops.fusescope.spmm(
        given["values"], given["v"], s.row_offsets, s.columns, s.order, s.long_rows, s.seq_q, s.block, impl
    )


if __name__ == "__main__":
    main()
