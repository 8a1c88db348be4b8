"""What a case of decoding is: its parameters, how they are completed and checked, and what it costs. No
torch."""

from __future__ import annotations

import math

from fusescope.core.schema import Parameter, size
from fusescope.ops.attention.describe import lengths as length_texts
from fusescope.ops.attention.describe.cases import KV_HEADS, complete_heads, head_dim
from fusescope.ops.base import Cost

PAGES = (16, 32, 64, 128, 256)
MOST_TOKENS = 8
"""New queries a sequence in one call."""
_KEYS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
PARAMETERS = (
    size("batch", 16, "sequences", 1 << 16, (1, 4, 16, 32, 64, 128)),
    size("heads", 32, "query heads", 1 << 12, (8, 12, 16, 32, 64)),
    KV_HEADS,
    size("seq_max", 4096, "keys the cache has room for", 1 << 24, _KEYS),
    head_dim(128, (64, 96, 128, 256)),
    Parameter("lengths", "text", "full", length_texts.HELP, typical=("full", "drawn")),
    Parameter(
        "tokens",
        "int",
        1,
        "new queries per sequence in causal order, whose keys are in the cache: more than 1 to check guesses",
        low=1,
        high=MOST_TOKENS,
        typical=(1, 2, 4, 8),
        sweep=True,
        omitted=True,
    ),
    Parameter(
        "page",
        "choice",
        "none",
        "keys of a page of a paged cache, whose pages lie in a drawn order; none: one contiguous cache",
        choices=("none", *map(str, PAGES)),
        omitted=True,
    ),
    Parameter(
        "window",
        "int",
        None,
        "keys that a token sees at most, the last before it and its own; all where left out",
        low=1,
        high=1 << 24,
        default_help="all keys",
        omitted=True,
    ),
    Parameter(
        "softcap",
        "float",
        None,
        "c: scaled scores become c tanh(score / c), as in Gemma 2; not capped where left out",
        above=0,
        default_help="not capped",
        omitted=True,
    ),
    Parameter(
        "sinks",
        "choice",
        "no",
        "yes: a score per head that takes part in the softmax and adds nothing, as in gpt-oss",
        choices=("no", "yes"),
        omitted=True,
    ),
    Parameter(
        "alibi",
        "choice",
        "no",
        "yes: slope[h] * (key - position of the query) added to the scores (ALiBi), as in BLOOM and MPT",
        choices=("no", "yes"),
        omitted=True,
    ),
    Parameter(
        "bias",
        "choice",
        "none",
        "head: random scores per head added, (1, H, T, seq_max)",
        choices=("none", "head"),
        omitted=True,
    ),
    Parameter(
        "kv_dtype",
        "choice",
        "q",
        "what K and V are kept in: q, the dtype of q, or fp8 (e4m3) with a scale per KV head",
        choices=("q", "fp8"),
        omitted=True,
    ),
)


def validate(values):
    """The complete case, kv_heads filled in; tokens and what follows it in PARAMETERS only where they are not
    the default. ValueError for unknown keys, sizes out of bounds, and what does not fit together."""
    case = complete_heads("attention_decode", PARAMETERS, values)
    lengths(case)
    if case.get("tokens", 1) > case["seq_max"]:
        raise ValueError(f"tokens is at most seq_max, {case['seq_max']}; not {case['tokens']}")
    if "page" in case and case["seq_max"] % int(case["page"]):
        raise ValueError(f"seq_max is a multiple of page, {case['page']}; not {case['seq_max']}")
    return case


def lengths(values) -> tuple[int, ...]:
    """Keys in the cache, one number per sequence, those of the new tokens included."""
    return length_texts.of(values["lengths"], values["batch"], values["seq_max"])


def tolerance(values, dtype):
    """It shrinks with the outputs, which average over the keys: the fewest of a token that sees any count,
    fewer where weights differ by what is added to scores. An fp8 cache changes nothing: its values are exact
    in fp16 and bf16, and its scales factors in fp32."""
    fewest = min((n for length in set(lengths(values)) for n in _seen(values, length) if n), default=1)
    if "alibi" in values:  # 1 / sum of squares of weights that fall by exp(-slope) from key to key
        fewest = min(fewest, round(1 / math.tanh(max(slopes(values["heads"])) / 2)))
    if "bias" in values:  # the variance of scores is 2, not 1 (see cases.tolerance)
        fewest = max(1, round(fewest / math.e))
    return length_texts.tolerance(fewest, dtype)


def slopes(heads: int) -> list[float]:
    """ALiBi's slopes (Press et al. 2022): 2^(-8 i / heads), i from 1 on, where heads is a power of 2; else
    those of the power below it, then every second one of the power above."""
    power = 1 << heads.bit_length() - 1
    own = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    return own + [2.0 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]


def _seen(values, length: int) -> list[int]:
    """The keys that each new token of a sequence of so many keys sees."""
    tokens = values.get("tokens", 1)
    counts = (max(0, length - tokens + 1 + t) for t in range(tokens))
    return [min(n, values.get("window", n)) for n in counts]


def _biases(values) -> int:
    """Places of a head's bias that a token of any sequence sees, over all tokens."""
    tokens, window, counts = values.get("tokens", 1), values.get("window"), lengths(values)
    found = 0
    for t in range(tokens):
        ends = sorted(max(0, n - tokens + 1 + t) for n in counts)
        to = 0  # the places before it are counted
        for end in ends:
            begin = max(to, end - window if window else 0)
            found += max(0, end - begin)
            to = max(to, end)
    return found


def _read(values, length: int) -> int:
    """The keys of a sequence that any of its new tokens sees."""
    return min(length, values.get("window", length) + values.get("tokens", 1) - 1)


def cost(values, dtype):
    """Two products of 2·D operations per key, query head and token that sees it, executed for every token and
    whole tiles of 64 keys that any token sees; those keys and values, queries, the table of pages, the
    scales of an fp8 cache, slopes and what is seen of the bias once."""
    size = 4 if dtype == "float32" else 2
    own = 1 if "kv_dtype" in values else size  # of the cache
    batch, heads, kv, d = (values[n] for n in ("batch", "heads", "kv_heads", "head_dim"))
    tokens = values.get("tokens", 1)
    seen = sum(sum(_seen(values, n)) for n in lengths(values))
    live = sum(_read(values, n) for n in lengths(values))
    executed = tokens * sum(-(-_read(values, n) // 64) * 64 for n in lengths(values))
    q = size * d * batch * heads * tokens
    table = 4 * batch * (values["seq_max"] // int(values["page"])) if "page" in values else 0
    notes = {"live_keys": live, "mean_length": sum(lengths(values)) / batch}
    read = q + 2 * own * d * kv * live + table + (8 * kv if "kv_dtype" in values else 0)
    read += 4 * heads if "alibi" in values else 0
    read += size * heads * _biases(values) if "bias" in values else 0
    return Cost(4.0 * d * heads * seen, 4.0 * d * heads * executed, read, q, "matrix", notes)
