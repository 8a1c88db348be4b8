"""The checks of tests/attention/unseen.py on emulated kernels: a masked key is unseen."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import torch

from fusescope.core.errors import Unsupported
from tests.attention import unseen
from tests.emulator.cases_attention import operands

CHECKS = {"attention": tuple(unseen.DENSE), "attention_varlen": tuple(unseen.PACKED)}
"""By family."""

# Rows without a key; padding; few keys of a tile; parts in strided-permuted order.
_DENSE = tuple(unseen.CASES[i] for i in (1, 2, 3, 5))


def results(op: str, impl: str, check: str) -> Iterator[dict]:
    """What came of each case, as of ``cases.results``; dtypes take turns."""
    os.environ["EMULATED_COPIES"], os.environ["EMULATED_SMS"] = "late", "3"
    cases = _DENSE if check in unseen.DENSE else (unseen.PACKED[check],)
    dtypes = ("float16", "float32", "bfloat16")
    for number, case in enumerate(cases):
        for dtype in dtypes[number % 3 :] + dtypes[: number % 3]:
            result = {"case": str(case), "dtype": dtype, "contiguous": True, "wrong": None, "refused": None}
            begin = time.perf_counter()
            try:
                if check in unseen.PACKED:
                    result["wrong"] = unseen.packed(lambda packed: _packed(packed, impl), case, dtype, "cpu")
                else:
                    run = unseen.DENSE[check]
                    result["wrong"] = run(lambda inputs: _dense(inputs, impl), case, dtype, "cpu")
            except (RuntimeError, Unsupported) as error:
                if "unsupported: " not in str(error):
                    raise
                result["refused"] = str(error).split("unsupported: ")[1].splitlines()[0]
            yield result | {"seconds": time.perf_counter() - begin}
            if result["refused"] is None:
                break


def _dense(inputs, impl):
    plan = operands(impl, inputs["plan"], inputs["q"], inputs["k"])
    q, k, v, bias = (inputs[name] for name in ("q", "k", "v", "bias"))
    return torch.ops.fusescope.attention(q, k, v, impl, *plan, None, bias, False)


def _packed(packed, impl):
    return torch.ops.fusescope.attention_varlen(*packed.args, packed.causal, packed.scale, impl)
