"""What a case of attention is: its parameters, how they are completed and checked, and what it costs. No
torch."""

from __future__ import annotations

import math
from functools import lru_cache

from fusescope import masks
from fusescope.core.schema import Parameter, size
from fusescope.core.score import parse, tables_of
from fusescope.masks import counting
from fusescope.ops.base import Cost, Tolerance
from fusescope.ops.common import cases as common


def score_text(text: str) -> str:
    """A score expression as cases hold it; ValueError for what is none."""
    return parse(text, tables_of(text)).text


_SEQS = tuple(1 << k for k in range(7, 15))
KV_HEADS = size(
    "kv_heads", None, "KV heads, a divisor of heads; as many as heads where left out", 1 << 12, sweep=False
)


def head_dim(default: int, typical: tuple[int, ...]) -> Parameter:
    """The parameter of an attention operator's head size."""
    help = "head size, a multiple of 8"
    return Parameter("head_dim", "int", default, help, low=32, high=256, typical=typical, sweep=True)


PARAMETERS = (
    size("batch", 1, "sequences", 1 << 16, (1, 2, 4, 8, 16, 32, 64)),
    size("heads", 12, "query heads", 1 << 12, (1, 2, 4, 8, 12, 16, 24, 32, 64)),
    KV_HEADS,
    size("seq", 512, "queries per sequence", 1 << 20, _SEQS),
    size("seq_k", None, "keys per sequence; as many as queries where left out", 1 << 20, _SEQS, sweep=False),
    head_dim(64, (32, 40, 64, 80, 96, 128, 160, 192, 256)),
    Parameter(
        "mask", "mask", "full", "which keys a query sees: name[:key=value,…]; defaults depend on the length"
    ),
    Parameter(
        "bias",
        "choice",
        "none",
        "head: random scores per head added, (1, H, S_q, S_k)",
        choices=("none", "head"),
    ),
    Parameter(
        "score",
        "text",
        None,
        "an expression that scaled scores become, such as score + slope[h] * (k - q), 20 * tanh(score / 20); "
        "its tensors are drawn, slope is ALiBi's; unchanged where left out",
        default_help="unchanged",
        further=score_text,
        omitted=True,
    ),
)

DTYPES = ("float32", "float16", "bfloat16")
_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_UNITS = {"float32": 256, "float16": 32, "bfloat16": 32}
_STORED = (
    "scores up to 7 in size rounded three times where they are stored (product, scale, bias: 20 "
    "measured for eager), probabilities"
)
_WHY = {
    "float32": (
        "256 roundings of 2^-24: sums over head size and keys and the exponential, "
        "whose error grows with the score (100 measured)"
    ),
    "float16": f"32 roundings of 2^-11: {_STORED} and output once each",
    "bfloat16": f"32 roundings of 2^-8: {_STORED} and output once each",
}
TOLERANCE = {
    t: Tolerance(n * _ROUNDOFF[t], n * _ROUNDOFF[t], f"{_WHY[t]}; a row with one live key")
    for t, n in _UNITS.items()
}


def tolerance(values, dtype):
    """The allowed error of a case: it shrinks with the outputs, which average over the live keys.

    Scores of random inputs are normal with variance 1 (2 with a bias), so a row with n live keys has outputs
    of standard deviation sqrt(sum p^2) = sqrt(exp(variance) / n), and errors of its weights average out
    likewise. The absolute part is for the row with the fewest live keys; with a fixed one, a wrong mask would
    pass at long sequences, where outputs are small. A score expression may leave a row one key that counts.
    """
    if "score" in values:
        return TOLERANCE[dtype]
    spread = math.exp(2 if values["bias"] == "head" else 1)
    fewest = _counts(values["mask"], values["seq"], values["seq_k"]).fewest
    size = min(1.0, math.sqrt(spread / max(fewest, 1)))
    units = _UNITS[dtype] * _ROUNDOFF[dtype]
    return Tolerance(units * size, units, f"{_WHY[dtype]}; rows with at least {fewest} keys")


def complete_heads(op: str, parameters: tuple[Parameter, ...], values) -> dict:
    """The case of an attention operator, kv_heads filled in. ValueError as of ``cases.complete_heads``, and
    for a head size that is no multiple of 8."""
    case = common.complete_heads(op, parameters, values)
    if case["head_dim"] % 8:
        raise ValueError(f"head_dim must be a multiple of 8 from 32 to 256, not {case['head_dim']}")
    return case


def validate(values):
    """The complete case. kv_heads and seq_k are filled in; mask is its canonical text with the parameters
    given, no more.

    Raises ValueError for an unknown key, a size out of bounds, heads that are no multiple of kv_heads, a head
    size that is no multiple of 8, a mask that cannot be read or does not fit the sizes, lengths for
    another number of sequences, and a score expression that is none.
    """
    case = complete_heads("attention", PARAMETERS, values)
    case["seq_k"] = case["seq_k"] or case["seq"]
    mask = masks.parse(case["mask"])
    mask.bind(case["seq"], case["seq_k"])
    if mask.sequences not in (None, case["batch"]):
        raise ValueError(
            f"mask {mask} gives lengths for {mask.sequences} sequences, batch is {case['batch']}"
        )
    return case | {"mask": str(mask)}


def cost(values, dtype):
    """Two products of 2·D operations a score: over live elements (effective), and over 64 × 64 tiles with any
    (executed).

    Bytes: q, k, v (as many KV heads as there are), bias and out once each; the mask's lists are not counted.
    """
    b, h, d, sq, sk = (values[n] for n in ("batch", "heads", "head_dim", "seq", "seq_k"))
    counts = _counts(values["mask"], sq, sk)
    live, executed, sequences = counts.kept, counts.executed, counts.elements // (sq * sk)
    copies = b * h / sequences
    size = 4 if dtype == "float32" else 2
    read = size * d * b * (h * sq + 2 * values["kv_heads"] * sk) + (
        size * h * sq * sk if values["bias"] == "head" else 0
    )
    notes = {"density": live / (sequences * sq * sk), "live_share": executed / (sequences * sq * sk)}
    effective, run, dense = (4 * d * n * copies for n in (live, executed, counts.elements))
    return Cost(effective, run, read, size * d * b * h * sq, "matrix", notes, dense)


@lru_cache(maxsize=256)
def _counts(mask: str, seq_q: int, seq_k: int) -> counting.Counts:
    return counting.counts(masks.parse(mask), seq_q, seq_k)
