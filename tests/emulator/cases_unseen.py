"""The checks of tests/attention/unseen.py on emulated kernels: a masked key is unseen."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial

import torch

from fusescope.core.errors import Unsupported
from fusescope.core.sources import families
from fusescope.ops.attention.dispatch.kernel_sources import takes_work_items
from tests.attention import unseen
from tests.emulator.cases_attention import operands, sized
from tests.emulator.cases_work_items import work_items

CHECKS = {
    "attention": tuple(unseen.DENSE),
    "attention_varlen": tuple(unseen.PACKED),
    "attention_decode": (*unseen.DECODING, *unseen.DECODING_BIAS),
}
"""By family."""

# Rows without a key; padding; few keys of a tile; parts in strided-permuted order; a bias whose rows begin at
# multiples of 16 bytes, with few columns.
_DENSE = tuple(unseen.CASES[i] for i in (1, 2, 3, 5, 7))

_OTHERS = unseen.PACKED | unseen.DECODING | unseen.DECODING_BIAS

# Of kernels on work items: a row's results from several parts of the mask, from several pieces of a list, and
# from both.
_FORMS = (
    ({"seq": 256, "mask": "strided:window=16,stride=8", "head_dim": 64}, "parts", 1),
    ({"seq": 200, "seq_k": 330, "mask": "longformer:window=5,global_tokens=3", "head_dim": 64}, "pieces", 64),
    ({"seq": 512, "mask": "fixed:block=32,summary=10", "head_dim": 96}, "parts and pieces", 64),
)
_OF_A_BIAS = ("bias", "masking_bias", "huge_bias")


def results(op: str, impl: str, check: str) -> Iterator[dict]:
    """What came of each case, as of ``cases.results``; dtypes take turns."""
    os.environ["EMULATED_COPIES"], os.environ["EMULATED_SMS"] = "late", "3"
    cases = _DENSE if check in unseen.DENSE else (_OTHERS[check],)
    dtypes = ("float16", "float32", "bfloat16")
    for number, case in enumerate(cases):
        case = sized(impl, case) if check in unseen.DENSE else case
        for dtype in dtypes[number % 3 :] + dtypes[: number % 3]:
            result = {"case": str(case), "dtype": dtype, "contiguous": True, "wrong": None, "refused": None}
            begin = time.perf_counter()
            try:
                if check in unseen.PACKED:
                    result["wrong"] = unseen.packed(lambda packed: _packed(packed, impl), case, dtype, "cpu")
                elif check in unseen.DECODING:
                    result["wrong"] = unseen.decoding(partial(_decoded, impl=impl), case, dtype, "cpu")
                elif check in unseen.DECODING_BIAS:
                    result["wrong"] = unseen.decoding_bias(partial(_decoded, impl=impl), case, dtype, "cpu")
                else:
                    run = partial(_dense, impl=impl)
                    result["wrong"] = unseen.DENSE[check](run, case, dtype, "cpu")
            except (RuntimeError, Unsupported) as error:
                if "unsupported: " not in str(error):
                    raise
                result["refused"] = str(error).split("unsupported: ")[1].splitlines()[0]
            yield result | {"seconds": time.perf_counter() - begin}
            if result["refused"] is None:
                break
    formed = check == "values" or (check in _OF_A_BIAS and families()["attention"].variant(impl).takes.bias)
    for (case, form, workers), spoil in (
        zip(_FORMS, unseen.SPOILS) if formed and takes_work_items(impl) else ()
    ):
        begin = time.perf_counter()
        run = partial(_formed, impl=impl, form=form, workers=workers)
        case = sized(impl, case)
        spoils = ((spoil,),) if check == "values" else ()
        wrong = unseen.DENSE[check](run, case, "float16", "cpu", *spoils)
        result = {"case": f"{case}, {form}", "dtype": "float16", "contiguous": True, "wrong": wrong}
        yield result | {"refused": None, "seconds": time.perf_counter() - begin}


def _dense(inputs, impl):
    plan = operands(impl, inputs["plan"], inputs["q"], inputs["k"])
    q, k, v, bias = (inputs[name] for name in ("q", "k", "v", "bias"))
    return torch.ops.fusescope.attention(q, k, v, impl, *plan, None, bias, False)


def _formed(inputs, impl, form, workers):
    q, k, v, plan, bias = (inputs[name] for name in ("q", "k", "v", "plan", "bias"))
    sizes = {"batch": q.shape[0], "heads": q.shape[1], "head_dim": q.shape[3]}
    work = work_items(impl, plan, sizes, form, workers)
    return torch.ops.fusescope.attention(q, k, v, impl, work.buffer, work.layout, None, bias, False)


def _decoded(case, impl):
    return torch.ops.fusescope.attention_decode_general(*case.args, None, impl, *case.more)


def _packed(packed, impl):
    window = packed.window or ()
    return torch.ops.fusescope.attention_varlen(*packed.args, packed.causal, packed.scale, impl, *window)
