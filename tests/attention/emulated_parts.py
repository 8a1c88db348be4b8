"""Runs the kernels on items of attention on the CPU by the emulator and prints what is wrong, a JSON line a
case.

A process of its own, because the library defines the operator a second time: python -m
tests.attention.emulated_parts
"""

from __future__ import annotations

import json
import os
from unittest import mock

import torch

from fusescope.ops.attention.work import items, parts
from tests.attention.attention_tools import OP, case, wrong
from tests.emulator import build

CASES = (
    ({"seq": 256, "mask": "dilated:window=20,dilation=2"}, "one part", 1),
    ({"seq": 512, "mask": "dilated:window=6,dilation=16", "head_dim": 40}, "one part", 1),
    ({"seq": 256, "mask": "strided:window=16,stride=8", "heads": 2, "kv_heads": 1}, "parts", 1),
    ({"seq": 256, "seq_k": 128, "mask": "strided:window=9,stride=4", "head_dim": 128}, "parts", 1),
    ({"seq": 1024, "mask": "fixed:block=32,summary=10", "head_dim": 96}, "parts and pieces", 64),
    ({"seq": 200, "mask": "dilated:window=9,dilation=3"}, "whole", 1),
    ({"seq": 200, "seq_k": 330, "mask": "longformer:window=5,global_tokens=3", "batch": 2}, "pieces", 64),
    (
        {"seq": 330, "mask": "bigbird:window=5,global_tokens=3,block=64,random_blocks=1", "head_dim": 72},
        "pieces",
        64,
    ),
    ({"seq": 65, "seq_k": 700, "head_dim": 128, "heads": 2, "kv_heads": 1}, "pieces", 64),
    ({"seq": 390, "mask": "causal"}, "pieces", 64),
    ({"seq": 150, "seq_k": 33, "mask": "causal"}, "whole", 1),
    ({"seq": 64, "seq_k": 130, "mask": "padding:lengths=66+3", "batch": 2}, "whole", 1),
    ({"seq": 600, "mask": "bigbird:window=5,global_tokens=3,block=64,random_blocks=3"}, "whole", 1),
    ({"seq": 1}, "whole", 1),
    ({"seq": 1300, "mask": "bigbird:window=5,global_tokens=3,block=64,random_blocks=3"}, "whole", 1),
    ({"seq": 70, "seq_k": 2300, "heads": 2}, "whole", 1),
    ({"seq": 200, "mask": "sliding_window:left=20,right=200", "head_dim": 128}, "whole", 1),
    ({"seq": 260, "mask": "sliding_window:left=100,right=30"}, "whole", 1),
    ({"seq": 300, "mask": "document:lengths=90+150+60", "head_dim": 128}, "whole", 1),
    ({"seq": 900, "mask": "sliding_window:left=128,right=128"}, "whole", 1),
    ({"seq": 900, "mask": "sliding_window:left=128,right=0", "head_dim": 128}, "whole", 1),
    ({"seq": 900, "mask": "sliding_window:left=64,right=0"}, "whole", 2),
    ({"seq": 900, "mask": "sliding_window:left=256,right=256"}, "whole", 1),
    ({"seq": 700, "mask": "sliding_window:left=20,right=64", "heads": 2}, "whole", 2),
    ({"seq": 512, "mask": "strided:window=64,stride=16", "heads": 2}, "parts", 1),
)
"""With how the mask is taken: as a whole or in parts, and whether lists are cut into pieces; and how many
teams there are."""


def work_of(plan, values, taken: str, teams: int):
    """The work of a call where whole or parts is not left to the prediction, and pieces, where they are
    wanted, cost nothing."""
    kept = parts._Kept(plan)
    kept.ways = [kept.ways["part" in taken]]
    object.__setattr__(plan, "_parts", kept)
    prices = {
        name: 0.0 if "pieces" in taken else getattr(items, name) for name in ("_ITEM", "_PIECE", "_JOIN")
    }
    with mock.patch.multiple(items, **prices):
        return parts.of(plan, values["batch"], values["heads"], values["head_dim"], teams)


def seen(work) -> str:
    rows = work.parts.tolist()
    way = ["parts"] if len(rows) > 1 else ["one part"] if rows[0][1] > 1 else []
    return " and ".join(way + ["pieces"] * any(row[6] for row in rows)) or "whole"


def main() -> None:
    torch.ops.load_library(build({"attention": [parts.KERNEL]}))
    for number, (values, taken, teams) in enumerate(CASES):
        dtype = ("float16", "bfloat16")[number % 2]
        values = case(**({"batch": 1, "heads": 1, "head_dim": 64} | values))
        inputs = OP.inputs(values, dtype, "cpu", number)
        if (
            number % 3 == 0
        ):  # so that later tiles raise the maximum by more than 2^8, and in some by more than fp32 has powers of two
            inputs["q"] *= (30, 300)[number % 2]
        q, k, v, plan = (inputs[name] for name in ("q", "k", "v", "plan"))
        work = work_of(plan, values, taken, teams)
        outs = []
        for copies, out_bshd in (
            ("late", False),
            ("early", True),
        ):  # neither when TMA delivers nor where results go must matter
            os.environ["EMULATED_COPIES"] = copies
            outs.append(
                torch.ops.fusescope.attention(
                    q, k, v, parts.KERNEL, work.buffer, work.layout, None, None, out_bshd
                )
            )
        told = {"case": values, "dtype": dtype, "taken": seen(work), "expected": taken}
        same = all(torch.equal(outs[0], other) for other in outs)
        print(json.dumps(told | {"wrong": wrong(outs[0], inputs, dtype), "same": same}), flush=True)


if __name__ == "__main__":
    main()
