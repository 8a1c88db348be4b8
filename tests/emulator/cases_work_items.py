"""Cases of attention on work items (v5 and v6): a mask as one list, or in parts; with lists that are split
or not; with a soft-cap, sinks and a bias."""

from __future__ import annotations

import math
import os
from unittest import mock

import torch

from fusescope.ops.attention.dispatch import kernel_sources
from fusescope.ops.attention.work import items, parts
from tests.attention import attention_tools, scored_tools

_BIGBIRD = "bigbird:window=5,global_tokens=3,block=64,random_blocks=3"
MASKED = (
    ({"seq": 256, "mask": "dilated:window=20,dilation=2"}, "one part", 1),
    ({"seq": 512, "mask": "dilated:window=6,dilation=16", "head_dim": 40}, "one part", 1),
    ({"seq": 256, "mask": "strided:window=16,stride=8", "heads": 2, "kv_heads": 1}, "parts", 1),
    ({"seq": 256, "seq_k": 128, "mask": "strided:window=9,stride=4", "head_dim": 128}, "parts", 1),
    ({"seq": 1024, "mask": "fixed:block=32,summary=10", "head_dim": 96}, "parts and pieces", 64),
    ({"seq": 200, "mask": "dilated:window=9,dilation=3"}, "whole", 1),
    ({"seq": 200, "seq_k": 330, "mask": "longformer:window=5,global_tokens=3", "batch": 2}, "pieces", 64),
    ({"seq": 330, "mask": _BIGBIRD.replace("=3", "=1"), "head_dim": 72}, "pieces", 64),
    ({"seq": 65, "seq_k": 700, "head_dim": 128, "heads": 2, "kv_heads": 1}, "pieces", 64),
    ({"seq": 390, "mask": "causal"}, "pieces", 64),
    ({"seq": 150, "seq_k": 33, "mask": "causal"}, "whole", 1),
    ({"seq": 64, "seq_k": 130, "mask": "padding:lengths=66+3", "batch": 2}, "whole", 1),
    ({"seq": 600, "mask": _BIGBIRD}, "whole", 1),
    ({"seq": 1}, "whole", 1),
    ({"seq": 1300, "mask": _BIGBIRD}, "whole", 1),
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
    ({"seq": 450, "seq_k": 2300, "heads": 2, "head_dim": 128}, "whole", 1),
    ({"seq": 450, "seq_k": 40, "mask": "causal", "heads": 3, "head_dim": 128}, "whole", 2),
    ({"seq": 512, "mask": "strided:window=64,stride=16", "heads": 2, "head_dim": 128}, "parts", 1),
    ({"seq": 900, "mask": "sliding_window:left=128,right=128", "head_dim": 128}, "whole", 1),
)
"""(values, whether the mask is one list or in parts and whether lists are split into pieces, workers)."""
_SINKS = (-math.inf, -4.0, 5.0, 30.0)
_FOUR_HEADS = {"heads": 4, "kv_heads": 2, "sinks": _SINKS}
SCORED = (
    (_FOUR_HEADS | {"seq": 256, "mask": "strided:window=16,stride=8", "softcap": 9.0}, "parts", 1),
    (_FOUR_HEADS | {"seq": 256, "mask": "strided:window=16,stride=8", "head_dim": 128}, "parts", 1),
    (_FOUR_HEADS | {"seq": 256, "mask": "dilated:window=20,dilation=2", "softcap": 50.0}, "one part", 1),
    (
        _FOUR_HEADS | {"seq": 1024, "mask": "fixed:block=32,summary=10", "head_dim": 96, "softcap": 20.0},
        "parts and pieces",
        64,
    ),
    (_FOUR_HEADS | {"seq": 390, "mask": "causal", "softcap": 9.0}, "pieces", 64),
    (_FOUR_HEADS | {"seq": 65, "seq_k": 700, "head_dim": 128}, "pieces", 64),
    ({"seq": 200, "seq_k": 330, "mask": "longformer:window=5,global_tokens=3", "softcap": 5.0}, "pieces", 64),
    (_FOUR_HEADS | {"seq": 150, "seq_k": 33, "mask": "causal", "softcap": 2.0}, "whole", 1),
    (_FOUR_HEADS | {"seq": 260, "mask": "sliding_window:left=100,right=30"}, "whole", 1),
    ({"seq": 260, "mask": "sliding_window:left=100,right=0", "softcap": 50.0, "head_dim": 128}, "whole", 1),
    (_FOUR_HEADS | {"seq": 300, "mask": "document:lengths=90+150+60", "softcap": 30.0}, "whole", 2),
)
"""The same with soft-capped scores, sinks or both."""


BIASED = (
    ({"seq": 256, "mask": "strided:window=16,stride=8", "layout": "rows", "heads": 2}, "parts", 1),
    (
        {"seq": 256, "seq_k": 128, "mask": "strided:window=9,stride=4", "head_dim": 128, "layout": "padded"}
        | {"softcap": 9.0, "sinks": True, "masking": True},
        "parts",
        1,
    ),
    ({"seq": 256, "mask": "dilated:window=20,dilation=2", "layout": "rows", "sinks": True}, "one part", 1),
    (
        {
            "seq": 512,
            "mask": "dilated:window=6,dilation=16",
            "head_dim": 40,
            "layout": "late",
            "softcap": 3.0,
        },
        "one part",
        1,
    ),
    ({"seq": 200, "mask": "dilated:window=9,dilation=3", "layout": "transposed"}, "whole", 1),
    (
        {
            "seq": 1024,
            "mask": "fixed:block=32,summary=10",
            "head_dim": 96,
            "layout": "one row",
            "sinks": True,
        },
        "parts and pieces",
        64,
    ),
    (
        {"seq": 200, "seq_k": 330, "mask": "longformer:window=5,global_tokens=3", "layout": "padded"}
        | {"batch": 2, "masking": True},
        "pieces",
        64,
    ),
    ({"seq": 390, "mask": "causal", "layout": "rows of one head", "heads": 2, "float32": True}, "pieces", 64),
    ({"seq": 65, "seq_k": 700, "head_dim": 128, "layout": "padded", "softcap": 5.0}, "pieces", 64),
    ({"seq": 150, "seq_k": 33, "mask": "causal", "layout": "one column", "masking": True}, "whole", 1),
    (
        {"seq": 600, "mask": _BIGBIRD, "layout": "rows of one batch", "batch": 2, "masking": True},
        "whole",
        1,
    ),
    ({"seq": 70, "seq_k": 2304, "layout": "one row", "heads": 2, "masking": True}, "whole", 1),
    (
        {"seq": 264, "mask": "sliding_window:left=100,right=30", "layout": "rows", "heads": 4, "kv_heads": 2},
        "whole",
        2,
    ),
    (
        {"seq": 904, "mask": "sliding_window:left=128,right=128", "head_dim": 128, "layout": "rows"}
        | {"softcap": 50.0, "masking": True},
        "whole",
        1,
    ),
    ({"seq": 300, "mask": "document:lengths=90+150+60", "head_dim": 128, "layout": "late"}, "whole", 1),
)
"""The same with a bias (bias_tools.made)."""


def in_parts(impl, inputs, dtype, form, workers, seed, softcap, sinks):
    """Neither when TMA delivers nor where results go changes a bit."""
    if seed % 3 == 0:  # later tiles raise the maximum by more than 2^8, and in some by more than fp32's range
        inputs["q"] *= (30, 300)[seed % 2]
    q, k, v, plan, bias = (inputs[name] for name in ("q", "k", "v", "plan", "bias"))
    sizes = {"batch": q.shape[0], "heads": q.shape[1], "head_dim": q.shape[3]}
    work = work_items(impl, plan, sizes, form, workers)
    if (got := _form(work)) != form:
        return f"the work is {got!r}, not {form!r}"
    more = (softcap, sinks) if softcap or sinks is not None else ()
    run = torch.ops.fusescope.attention_scored if more else torch.ops.fusescope.attention
    outs = []
    for copies, out_bshd in (("late", False), ("early", True)):
        os.environ["EMULATED_COPIES"] = copies
        outs.append(run(q, k, v, impl, work.buffer, work.layout, None, bias, out_bshd, *more))
    if not torch.equal(*outs):
        return "results differ with the time of copies"
    if not more and bias is None:
        return attention_tools.wrong(outs[0], inputs, dtype)
    if reason := scored_tools.wrong(outs[0], inputs, dtype, softcap, sinks):
        return reason
    # Rows that do not see a NaN in V are computed again.
    key = v.shape[2] // 2
    spoilt = v.index_fill(2, torch.tensor([key]), math.nan)
    again = run(q, k, spoilt, impl, work.buffer, work.layout, None, bias, False, *more)
    seen = plan.dense()[..., key, None]
    if bias is not None:
        seen = seen & (bias.expand(*q.shape[:3], k.shape[2])[..., key, None] > -math.inf)
    seen = seen.expand(outs[0].shape)
    if not again[seen].isnan().all():
        return "a NaN of V is lost"
    return scored_tools.wrong(torch.where(seen, outs[0], again), inputs, dtype, softcap, sinks)


def work_items(impl: str, plan, case, form: str, workers: int):
    """The work items of a call where whole or parts is not left to the prediction, and pieces, where they are
    wanted, cost nothing."""
    group = kernel_sources.group(impl)
    made = parts.PlanItems(plan, group)
    made.splits = [made.splits["part" in form]]
    free = {n: 0.0 if "pieces" in form else getattr(items, n) for n in ("_ITEM", "_PIECE", "_JOIN")}
    copies = case["batch"] * case["heads"] // (plan.batch * plan.heads)
    with mock.patch.multiple(items, **free):
        return made.make(copies, workers, parts.per_sm(case["head_dim"], group))


def _form(work) -> str:
    rows = work.parts.tolist()
    way = ["parts"] if len(rows) > 1 else ["one part"] if rows[0][1] > 1 else []
    return " and ".join(way + ["pieces"] * any(row[6] for row in rows)) or "whole"
