"""Cases of attention and decoding: lengths, masks, head sizes and work items that no operator's own
inputs have."""

from __future__ import annotations

import math
import os
from functools import partial
from unittest import mock

import torch

from fusescope import ops
from fusescope.core.sources import families
from fusescope.measure.checking.check import compare
from fusescope.ops.attention.dispatch import kernel_sources
from fusescope.ops.attention.plan import buffer, schedule
from fusescope.ops.attention.work import items, parts
from tests.attention import (
    attention_tools,
    bias_tools,
    decode_tools,
    scored_tools,
    step_tools,
)
from tests.emulator.cases import Case, Emulation, copied

MASKED = (
    {"seq": 1},
    {"seq": 33, "seq_k": 200, "mask": "causal", "bias": "head", "heads": 2, "kv_heads": 1},
    {"seq": 130, "seq_k": 65, "mask": "causal"},
    {"seq": 70, "seq_k": 130, "mask": "random:density=0.03", "head_dim": 40},
    {"seq": 65, "mask": "sliding_window:left=9,right=3", "head_dim": 96},
    {"seq": 70, "mask": "document:lengths=20+40", "head_dim": 128},
    {"seq": 65, "seq_k": 130, "mask": "padding:lengths=66", "head_dim": 136},
    {"seq": 17, "seq_k": 70, "head_dim": 256},
)
HOPPER = (
    {"seq": 65, "seq_k": 200, "head_dim": 64},
    {"seq": 190, "mask": "causal", "head_dim": 64, "heads": 2, "kv_heads": 1},
    {
        "seq": 150,
        "seq_k": 390,
        "mask": "bigbird:window=5,global_tokens=3,block=64,random_blocks=1",
        "head_dim": 96,
    },
    {"seq": 66, "seq_k": 330, "mask": "longformer:window=5,global_tokens=3", "batch": 2, "head_dim": 128},
)
"""For kernels on Hopper's tensor cores: several steps of two KV tiles."""
MANY_TILES = {"seq": 65, "heads": 133, "mask": "causal"}
"""Two warpgroups a block in v3_hopper: more than 2 x 132 tiles, whatever the device."""


SCORED = (
    {"seq": 33, "seq_k": 70, "mask": "causal", "softcap": 2.0, "sinks": True, "heads": 2, "kv_heads": 1},
    {"seq": 40, "seq_k": 9, "mask": "causal", "bias": "head", "softcap": 30.0},  # rows without a key
    {"seq": 65, "mask": "random:density=0.03", "sinks": True, "head_dim": 136},
    {"seq": 150, "seq_k": 120, "mask": "causal", "softcap": 5.0, "sinks": True, "head_dim": 64, "heads": 2},
    {"seq": 70, "seq_k": 600, "softcap": 3.0, "sinks": True, "head_dim": 64},  # several warpgroups a tile
    {"seq": 130, "seq_k": 390, "mask": "sliding_window:left=30,right=3", "softcap": 9.0, "head_dim": 128},
    {"seq": 9, "seq_k": 200, "mask": "causal", "sinks": True, "head_dim": 96, "heads": 67, "batch": 2},
)
"""With soft-capped scores, sinks or both."""


def _attention(impl):
    takes = [v.name for v in families()["attention"].variants if v.takes.scored]
    for values in SCORED if impl in takes else ():
        yield Case(sized(impl, values))
    for values in bias_tools.CASES if families()["attention"].variant(impl).takes.bias else ():
        yield Case(values, contiguous=True)
    in_parts = _IN_PARTS + _SCORED_IN_PARTS * (impl in takes)
    for values, form, workers in in_parts if kernel_sources.takes_work_items(impl) else ():
        yield Case(sized(impl, {"head_dim": 64} | values) | {"form": form, "workers": workers})
    for values in MASKED + HOPPER + (MANY_TILES,) * (impl == "v3_hopper"):
        yield from copied("attention", impl, values)


_APART = ("form", "workers", "softcap", "sinks")  # of a case's values, what the operator's schema has not


def _execute_attention(op, impl, values, dtype, contiguous, seed):
    if "layout" in values:
        return _biased(impl, values, dtype, seed)
    form, workers, softcap, sinks = (values.get(name) for name in _APART)
    case = attention_tools.case(
        **{"batch": 1, "heads": 1} | {k: v for k, v in values.items() if k not in _APART}
    )
    inputs = attention_tools.OP.inputs(case, dtype, "cpu", seed, contiguous or form is not None)
    if sinks is not None:
        sinks = torch.linspace(-1, 2, case["heads"]) if sinks is True else torch.tensor(sinks)
    if form:
        return _in_parts(impl, case, inputs, dtype, form, workers, seed, softcap, sinks)
    given = operands(impl, inputs["plan"], inputs["q"], inputs["k"])
    out_bshd = seed % 4 > 1
    if softcap or sinks is not None:
        more = (*given, None, inputs["bias"], out_bshd, softcap, sinks)
        out = torch.ops.fusescope.attention_scored(inputs["q"], inputs["k"], inputs["v"], impl, *more)
        return scored_tools.wrong(out, inputs, dtype, softcap, sinks)
    out = torch.ops.fusescope.attention(
        inputs["q"], inputs["k"], inputs["v"], impl, *given, None, inputs["bias"], out_bshd
    )
    if not (out.transpose(1, 2) if out_bshd else out).is_contiguous():
        return f"strides {out.stride()}"
    return attention_tools.wrong(out.contiguous(), inputs, dtype)


def _biased(impl, values, dtype, seed):
    """When copies come changes no bit."""
    inputs = bias_tools.inputs(values, dtype, "cpu", seed)
    q, k, v, bias, softcap, sinks = (inputs[name] for name in ("q", "k", "v", "bias", "softcap", "sinks"))
    more = (*operands(impl, inputs["plan"], q, k), None, bias, False)
    outs = []
    for copies in ("late", "early"):
        os.environ["EMULATED_COPIES"] = copies
        if softcap or sinks is not None:
            outs.append(torch.ops.fusescope.attention_scored(q, k, v, impl, *more, softcap, sinks))
        else:
            outs.append(torch.ops.fusescope.attention(q, k, v, impl, *more))
    if not torch.equal(*outs):
        return "results differ with the time of copies"
    return scored_tools.wrong(outs[0], inputs, dtype, softcap, sinks)


def operands(impl, plan, q, k):
    """What a kernel is given of a plan: (buffer, layout), of its work items where it takes those."""
    group = kernel_sources.group(impl)
    if group is None:
        return _scheduled(plan)
    work = parts.work(plan, q, k, group)
    return work.buffer, work.layout


def _scheduled(plan):
    """The plan's buffer and layout with the schedule that plans have on Hopper."""
    if plan.row_ptr is None:
        return plan.buffer, plan.layout
    names = ("row_ptr", "tile_index", "tile_code", "bitmaps")
    arrays = {name: getattr(plan, name) for name in names}
    masks = plan.batch * plan.heads
    built = schedule.build(*arrays.values(), masks, plan.seq_q, plan.seq_k)
    arrays |= dict(zip(("schedule", "fragments"), built))
    return buffer.join(arrays, (plan.seq_q, plan.seq_k, plan.batch, plan.heads), plan.device)[:2]


# --- v5 and v6: a mask as one list of work items, or in parts; with lists that are split or not

_BIGBIRD = "bigbird:window=5,global_tokens=3,block=64,random_blocks=3"
_IN_PARTS = (
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
_SCORED_IN_PARTS = (
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


def _in_parts(impl, case, inputs, dtype, form, workers, seed, softcap, sinks):
    """Neither when TMA delivers nor where results go changes a bit."""
    if seed % 3 == 0:  # later tiles raise the maximum by more than 2^8, and in some by more than fp32's range
        inputs["q"] *= (30, 300)[seed % 2]
    q, k, v, plan = (inputs[name] for name in ("q", "k", "v", "plan"))
    work = work_items(impl, plan, case, form, workers)
    if (got := _form(work)) != form:
        return f"the work is {got!r}, not {form!r}"
    more = (softcap, sinks) if softcap or sinks is not None else ()
    run = torch.ops.fusescope.attention_scored if more else torch.ops.fusescope.attention
    outs = []
    for copies, out_bshd in (("late", False), ("early", True)):
        os.environ["EMULATED_COPIES"] = copies
        outs.append(run(q, k, v, impl, work.buffer, work.layout, None, None, out_bshd, *more))
    if not torch.equal(*outs):
        return "results differ with the time of copies"
    if not more:
        return attention_tools.wrong(outs[0], inputs, dtype)
    if reason := scored_tools.wrong(outs[0], inputs, dtype, *more):
        return reason
    # Rows that do not see a NaN in V are computed again.
    key = v.shape[2] // 2
    spoilt = v.index_fill(2, torch.tensor([key]), math.nan)
    again = run(q, k, spoilt, impl, work.buffer, work.layout, None, None, False, *more)
    seen = plan.dense()[..., key, None].expand(outs[0].shape)
    if not again[seen].isnan().all():
        return "a NaN of V is lost"
    return scored_tools.wrong(torch.where(seen, outs[0], again), inputs, dtype, *more)


def work_items(impl: str, plan, case, form: str, workers: int):
    """The work items of a call where whole or parts is not left to the prediction, and pieces, where they are
    wanted, cost nothing."""
    made = parts.PlanItems(plan, kernel_sources.group(impl))
    made.splits = [made.splits["part" in form]]
    free = {n: 0.0 if "pieces" in form else getattr(items, n) for n in ("_ITEM", "_PIECE", "_MERGE_LAUNCH")}
    copies = case["batch"] * case["heads"] // (plan.batch * plan.heads)
    with mock.patch.multiple(items, **free):
        return made.make(copies, workers, parts.resident(1, case["head_dim"]))


def sized(impl: str, values: dict) -> dict:
    """The values with a head size that the kernel takes."""
    above = next((v.takes.above for v in kernel_sources.sources("attention") if v.name == impl), 0)
    return values if values.get("head_dim", 64) > above else values | {"head_dim": above + 8}


def _form(work) -> str:
    rows = work.parts.tolist()
    way = ["parts"] if len(rows) > 1 else ["one part"] if rows[0][1] > 1 else []
    return " and ".join(way + ["pieces"] * any(row[6] for row in rows)) or "whole"


# --- decoding

_CACHES = (
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
_LONG = (
    {"batch": 1, "heads": 2, "kv_heads": 1, "seq_max": 1100, "head_dim": 40},
    {"batch": 2, "heads": 9, "kv_heads": 1, "seq_max": 2100, "head_dim": 32, "lengths": "2100+3"},
)

_OF_MANY_BLOCKS = 10_000
"""Keys from which on a case is for the many blocks that share them, which few multiprocessors do not have."""


def _decode(impl):
    """Few multiprocessors give long shares of the keys, many give partial results to merge."""
    for values in _CACHES:
        yield Case({"head_dim": 32} | values)
        yield Case({"head_dim": 32} | values, copies="early", sms=1)
    for values in _LONG:  # many multiprocessors: the large blocks and clusters of v4
        for copies in ("late", "early"):
            yield Case(values, copies=copies, sms=0)
    takes = families(("attention_decode",))["attention_decode"].variant(impl).takes
    if takes.scored:
        for number, given in enumerate(decode_tools.BIASED_CASES):
            if (takes.fp8_cache or "fp8" not in given) and takes.has_head_dim(given.get("dim", 64)):
                one, other = ("early", "late")[:: -1 if number % 2 else 1]
                how = dict(dtypes=2, contiguous=number % 3 > 0, sms=1 + number % 4)
                yield Case({"biased": number}, copies=one, **how)
                yield Case({"biased": number}, contiguous=True, copies=other, sms=63)
        for number, given in enumerate(decode_tools.CASES):
            if not takes.has_head_dim(given.get("dim", 64)):
                continue
            if max(given["lengths"]) > _OF_MANY_BLOCKS:
                copies = ("early", "late")[number % 2]
                yield Case({"general": number}, contiguous=number % 2 == 0, copies=copies, sms=63)
                continue
            yield Case({"general": number}, dtypes=2, contiguous=number % 2 == 0, sms=1 + number % 4)
            yield Case({"general": number}, contiguous=True, copies="early", sms=63)
    if takes.fp8_cache:
        for number, given in enumerate(decode_tools.FP8_CASES):
            how = dict(contiguous=number % 3 > 0, copies=("late", "early")[number % 2])
            if max(given["lengths"]) <= _OF_MANY_BLOCKS:
                yield Case({"fp8": number}, dtypes=2, sms=1 + number % 4, **how)
                continue
            for sms in (63, 3):  # with 3 more blocks than slots
                yield Case({"fp8": number}, sms=sms, **how)
    if takes.new_token:
        for number, given in enumerate(step_tools.CASES):
            one, other = ("early", "late")[:: -1 if number % 2 else 1]
            if max(given["lengths"]) <= _OF_MANY_BLOCKS:
                how = dict(dtypes=2, contiguous=number % 4 > 0, sms=1 + number % 4)
                yield Case({"step": number}, copies=one, **how)
            yield Case({"step": number}, contiguous=True, copies=other, sms=63)


def _execute_decode(op, impl, values, dtype, contiguous, seed):
    if "step" in values:
        given = step_tools.CASES[values["step"]]
        case = step_tools.make(**given, dtype=dtype, seed=seed, strided=not contiguous)
        return step_tools.wrong(case, partial(_step, impl, seed % 3 > 0), partial(_attend, impl))
    known = {
        "general": decode_tools.CASES,
        "fp8": decode_tools.FP8_CASES,
        "biased": decode_tools.BIASED_CASES,
    }
    if form := next(iter(values.keys() & known), None):
        given = known[form][values[form]]
        case = decode_tools.make(**given, dtype=dtype, seed=seed, strided=not contiguous)
        run = torch.ops.fusescope.attention_decode_general
        return decode_tools.wrong(run(*case.args, None, impl, *case.more), case)
    module = ops.load(op)
    case = module.validate(values)
    inputs = module.inputs(case, dtype, "cpu", seed, contiguous)
    reference = module.reference(inputs)
    for i, n in enumerate(inputs["lengths"].tolist()):  # reading beyond a length spoils the result
        for cache in (inputs["k"], inputs["v"]):
            cache[i, :, n:] = math.nan
    out = torch.ops.fusescope.attention_decode(*module.arguments(inputs)[0], case["head_dim"] ** -0.5, impl)
    return compare(out, reference, module.tolerance(case, dtype)).reason


def _step(impl, settled, given):
    names = "q", "k", "v", "cos_sin", "positions", "places", "k_cache", "v_cache", "block_table", "lengths"
    run = torch.ops.fusescope.attention_decode_step
    return run(*(given[name] for name in names), None, settled, impl)


def _attend(impl, q, given):
    caches, run = (given["k_cache"], given["v_cache"]), torch.ops.fusescope.attention_decode_general
    return run(q, *caches, given["lengths"], None, impl, given["block_table"])


EMULATIONS = {
    "attention": Emulation(_attention, _execute_attention),
    "attention_decode": Emulation(_decode, _execute_decode),
}
