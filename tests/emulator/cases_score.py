"""Cases of attention with a score expression: a kernel is compiled for each expression, dtype and head
size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from tests.attention import attention_tools, scored_tools
from tests.emulator.cases_attention import operands

CHECK = "score:"
ALIBI = "score + slope[h] * (k - q)"
EVERY_PART = (
    "where(document[q] == document[k] and not h > 5, 5 * tanh(score / 5) + table[h, k - q + 40], -1e30)"
    " + sqrt(abs(q - k)) / (1 + exp(-score)) - log(1 + max(k - q, 0)) * min(b + k // 7 % 3, 2)"
)
NOTHING_BEYOND = "score + log(q - k + 1)"
"""-inf and NaN where a causal mask hides the key."""


@dataclass(frozen=True)
class Expressed:
    """An expression, what it is compiled for, and the cases that a kernel runs with it."""

    text: str
    dtype: str
    head_dim: int
    cases: tuple[dict[str, Any], ...]


_GROUPED = {"seq": 40, "seq_k": 130, "heads": 4, "kv_heads": 2, "batch": 2}
_MORE_ROWS = {"seq": 130, "seq_k": 65, "mask": "causal"}
_OTHERS = (
    Expressed(ALIBI, "float16", 64, (_GROUPED, _MORE_ROWS | {"heads": 2})),
    Expressed(EVERY_PART, "bfloat16", 40, (_GROUPED | {"sinks": True}, _MORE_ROWS | {"bias": "head"})),
    Expressed(
        NOTHING_BEYOND,
        "float16",
        136,
        ({"seq": 70, "seq_k": 90, "mask": "causal"}, {"seq": 66, "mask": "sliding_window:left=9,right=0"}),
    ),
)
_SCHEDULED = (
    Expressed(
        ALIBI,
        "float16",
        64,
        ({"seq": 150, "seq_k": 120, "mask": "causal", "heads": 2}, {"seq": 70, "seq_k": 600, "sinks": True}),
    ),
    Expressed(
        EVERY_PART,
        "bfloat16",
        96,
        (
            _GROUPED | {"mask": "sliding_window:left=30,right=3", "sinks": True},
            {"seq": 9, "seq_k": 200, "mask": "causal", "heads": 67, "batch": 2, "bias": "head"},
        ),
    ),
    Expressed(NOTHING_BEYOND, "float16", 40, ({"seq": 150, "seq_k": 390, "mask": "causal", "heads": 2},)),
)


def of(impl: str) -> tuple[Expressed, ...]:
    """What a kernel is compiled for; that of fp32 takes it in the place of fp16."""
    if impl == "v4_scheduled":
        return _SCHEDULED
    single = impl == "v2_blockwise_fp32"
    return tuple(
        Expressed(one.text, "float32", one.head_dim, one.cases) if single and one.dtype == "float16" else one
        for one in _OTHERS
    )


def inputs(one: Expressed, values: dict, seed: int, contiguous: bool = True) -> dict:
    """Of one of its cases; the expression's tensors are drawn."""
    given = {k: v for k, v in values.items() if k != "sinks"}
    case = attention_tools.case(
        **{"batch": 1, "heads": 1} | given | {"head_dim": one.head_dim, "score": one.text}
    )
    return attention_tools.OP.inputs(case, one.dtype, "cpu", seed, contiguous)


def results(name: str, check: str) -> Iterator[dict]:
    """What came of each case, with copies that come late and early. name: of the compiled kernel; check:
    score: and the number of what it was compiled for."""
    impl = name.partition("__")[0]
    one = of(impl)[int(check.removeprefix(CHECK))]
    for (number, values), copies in product(enumerate(one.cases), ("late", "early")):
        os.environ["EMULATED_COPIES"] = copies
        made = inputs(one, values, number, contiguous=number != 1 or impl == "v4_scheduled")
        sinks = torch.linspace(-1, 2, made["q"].shape[1]) if values.get("sinks") else None
        plan = operands(impl, made["plan"], made["q"], made["k"])
        more = (*plan, None, made["bias"], False, sinks)
        qkv = (made[name] for name in "qkv")
        out = torch.ops.fusescope.attention_expressed(*qkv, name, list(made["score"].tables), *more)
        yield {
            "case": str(values),
            "wrong": scored_tools.wrong(out, made, one.dtype, None, sinks),
            "refused": None,
        }
