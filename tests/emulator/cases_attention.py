"""Cases of attention and decoding: lengths, masks, head sizes and work items that no operator's own
inputs have."""

from __future__ import annotations

import math
import os
from functools import partial

import torch

from fusescope import ops
from fusescope.core.sources import families
from fusescope.measure.checking.check import compare
from fusescope.ops.attention.dispatch import kernel_sources
from fusescope.ops.attention.plan import buffer, schedule
from fusescope.ops.attention.work import parts
from tests.attention import (
    attention_tools,
    bias_tools,
    decode_tools,
    scored_tools,
    step_tools,
)
from tests.emulator import cases_work_items
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
    biased = families()["attention"].variant(impl).takes.bias
    for values in bias_tools.CASES if biased else ():
        yield Case(values, contiguous=True)
    in_parts = (
        cases_work_items.MASKED + cases_work_items.SCORED * (impl in takes) + cases_work_items.BIASED * biased
    )
    for values, form, workers in in_parts if kernel_sources.takes_work_items(impl) else ():
        yield Case(sized(impl, {"head_dim": 64} | values) | {"form": form, "workers": workers})
    for values in MASKED + HOPPER + (MANY_TILES,) * (impl == "v3_hopper"):
        yield from copied("attention", impl, values)


_APART = ("form", "workers", "softcap", "sinks")  # of a case's values, what the operator's schema has not


def _execute_attention(op, impl, values, dtype, contiguous, seed):
    form, workers, softcap, sinks = (values.get(name) for name in _APART)
    if "layout" in values:
        given = {k: v for k, v in values.items() if k not in ("form", "workers")}
        inputs = bias_tools.inputs(given, dtype, "cpu", seed)
        if not form:
            return _biased(impl, inputs, dtype)
        return cases_work_items.in_parts(impl, inputs, dtype, form, workers, seed, softcap, inputs["sinks"])
    case = attention_tools.case(
        **{"batch": 1, "heads": 1} | {k: v for k, v in values.items() if k not in _APART}
    )
    inputs = attention_tools.OP.inputs(case, dtype, "cpu", seed, contiguous or form is not None)
    if sinks is not None:
        sinks = torch.linspace(-1, 2, case["heads"]) if sinks is True else torch.tensor(sinks)
    if form:
        return cases_work_items.in_parts(impl, inputs, dtype, form, workers, seed, softcap, sinks)
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


def _biased(impl, inputs, dtype):
    """When copies come changes no bit."""
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


def sized(impl: str, values: dict) -> dict:
    """The values with a head size that the kernel takes."""
    above = next((v.takes.above for v in kernel_sources.sources("attention") if v.name == impl), 0)
    return values if values.get("head_dim", 64) > above else values | {"head_dim": above + 8}


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
