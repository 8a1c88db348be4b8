"""What one call of a model costs: FLOP by layer part, and the least bytes. No torch.

Effective: the tokens that there are, the pairs that the mask keeps. Executed: every token of the padded
batch, the live 64 × 64 tiles of the padded mask. A product and a sum are two operations; softmax and the
element-wise rest count as in search/layer.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fusescope import masks
from fusescope.masks import counting
from fusescope.models.describe import cases, catalog, tree
from fusescope.models.describe.family import EIGHT_BIT, FP8_CACHE, PARTS, Config, quantises
from fusescope.ops.base import Cost

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_NORM, _SOFTMAX, _ACTIVATION, _ROWS = 10, 5, 6, 512


def cost(name: str, case: Mapping[str, Any], dtype: str, quantised: str | None = None) -> Cost:
    """Of one call on a complete case; quantised: as of ``weight_bytes``. notes: {"effective": {part: FLOP},
    "executed": {part: FLOP}, "valid_tokens", "tokens"}.

    Bytes: every weight once (of embedding tables the rows that are read), the KV cache once, inputs and
    outputs once.
    """
    module, config, size = catalog.family(name), catalog.config(name, case), BYTES[dtype]
    counts = cases.lengths(case)
    if case.get("phase") == "generate":
        return _of_generation(name, config, case, dtype, quantised)
    if module.SETTINGS is None:
        return _of_architecture(module, config, case, counts, size)
    decode = case.get("phase") == "decode"
    tokens, valid = case["batch"] * (1 if decode else case["seq"]), case["batch"] if decode else sum(counts)
    window = config.more.get("window") or case["seq"] + 1
    pairs = _pairs(case, counts, decode, window)
    effective, executed = (
        _parts(module.KIND, config, t, p, case, decode) for t, p in zip((valid, tokens), pairs)
    )
    unread = ("embeddings/word", "pooler") if decode else ("embeddings/word", "pooler", "head")
    weights = sum(
        math.prod(w.dims(config)) for w, _ in tree.rows(module, config) if not w.node.startswith(unread)
    )
    tables = (2 if module.KIND == "encoder-decoder" else 1) * valid * config.hidden
    head = config.vocab * config.hidden if decode and config.tied else 0
    cache = 2 * sum(min(n, window) for n in counts) * config.kv_inner * config.layers if decode else 0
    pixels = tokens * config.pixels
    written = case["batch"] * config.vocab if decode else valid * config.hidden
    notes = {"effective": effective, "executed": executed, "valid_tokens": valid, "tokens": tokens}
    read = float(size * (weights + tables + head + cache + pixels))
    if quantised == FP8_CACHE and decode:
        read -= (size - 1) * cache - _scale_bytes(config)
    elif quantised in EIGHT_BIT:
        read -= weight_bytes(name, case, dtype) - weight_bytes(name, case, dtype, quantised)
    return Cost(sum(effective.values()), sum(executed.values()), read, float(size * written), "matrix", notes)


def _of_generation(name: str, config: Config, case, dtype: str, quantised: str | None) -> Cost:
    """The prompt, the head of its last token, and a decoded token for each further one, over a cache that
    grows by it: what a step costs is linear in that, so the mean of the first and the last."""
    own = {key: value for key, value in case.items() if key != "new"}
    new, head = case["new"], 2.0 * case["batch"] * config.hidden * config.vocab
    prompt = cost(name, own | {"phase": "prefill"}, dtype, quantised)
    ends = [
        cost(name, own | {"phase": "decode", "seq": seq}, dtype, quantised)
        for seq in (case["seq"], case["seq"] + new - 2)
    ]

    def total(of) -> float:
        return of(prompt) + (new - 1) * (of(ends[0]) + of(ends[1])) / 2

    work = {
        kind: {
            p: total(lambda c, kind=kind, p=p: c.notes[kind][p]) + head * (p == "head")
            for p in prompt.notes[kind]
        }
        for kind in ("effective", "executed")
    }
    read = total(lambda c: c.bytes_read) + BYTES[dtype] * config.vocab * config.hidden
    written = float(BYTES[dtype] * case["batch"] * new * config.vocab)
    notes = work | {"valid_tokens": case["batch"] * new, "tokens": case["batch"] * new}
    return Cost(
        sum(work["effective"].values()), sum(work["executed"].values()), read, written, "matrix", notes
    )


def weight_bytes(name: str, case: Mapping[str, Any], dtype: str, quantised: str | None = None) -> int:
    """Of all weights; quantised, one of EIGHT_BIT: those of the layers in 8 bits with a float32 scale per
    output channel."""
    module, config, total = catalog.family(name), catalog.config(name, case), 0
    for weight, _ in tree.rows(module, config):
        dims = weight.dims(config)
        if quantised in EIGHT_BIT and weight.ours and quantises(weight.ours):
            total += math.prod(dims) + 4 * dims[1 if weight.transposed else 0]
        else:
            total += BYTES[dtype] * math.prod(dims)
    return total


def cache_bytes(name: str, case: Mapping[str, Any], dtype: str, quantised: str | None = None) -> int | None:
    """Of the KV cache of a generating phase, None where there is none; quantised, FP8_CACHE: in 8 bits with
    its scales."""
    more = {"prefill": 0, "decode": 1, "generate": case.get("new") or 0}.get(case.get("phase"))
    if more is None:
        return None
    config = catalog.config(name, case)
    size, scales = (1, _scale_bytes(config)) if quantised == FP8_CACHE else (BYTES[dtype], 0)
    return size * case["batch"] * (case["seq"] + more) * _cached(config) + scales


def _cached(config: Config) -> int:
    """Numbers that all layers keep of a token."""
    return sum(heads * (key + value) for heads, key, value in config.cache)


def _scale_bytes(config: Config) -> int:
    """Of K and of V a float32 number per layer and KV head."""
    return 8 * config.layers * (config.kv_heads or config.heads)


def _of_architecture(module, config: Config, case, counts: list[int], size: int) -> Cost:
    """Of a model by its config.json: what it does at least. Products with matrices of two dimensions, with
    the share of its experts that a token takes, and attention within its window; convolutions, scans and the
    element-wise rest do not count, nor do matrices of an image model, whose tokens differ by stage. To decode
    one token of each sequence over the keys and values within the window, and the head."""
    batch, seq = case["batch"], case["seq"]
    numel = dict.fromkeys(("matrix", "experts", "table", "head", "other"), 0)
    for weight, _ in tree.rows(module, config):
        numel[weight.kind] += math.prod(weight.dims(config))
    experts, used = module.found["experts"], module.found["experts_used"]
    share = min(1.0, used / experts) if experts and used else 0.0
    per_token = 0.0 if module.tokens else 2.0 * (numel["matrix"] + share * numel["experts"])
    pair = 0.0 if module.tokens else config.layers * (4.0 * config.head_dim + _SOFTMAX) * config.heads
    decode, causal = case.get("phase") == "decode", module.KIND == "decoder"
    window = min(module.found["window"] or seq + 1, seq + 1)

    def work(tokens: list[int]) -> dict[str, float]:
        if decode:
            seen = [min(n + 1, window) for n in tokens]
        else:
            seen = [_below(n, window) if causal else n * min(n, window) for n in tokens]
        found = {"model": (batch if decode else sum(tokens)) * per_token + sum(seen) * pair}
        return found | (
            {"head": 2.0 * batch * config.hidden * config.vocab * decode} if module.PHASES else {}
        )

    effective, executed = work(counts), work([seq] * batch)
    read = numel["matrix"] + numel["other"] + share * numel["experts"]
    written = sum(counts) * config.hidden
    if decode:
        read += config.vocab * config.hidden + sum(min(n, window) for n in counts) * _cached(config)
        written = batch * config.vocab
    notes = {
        "effective": effective,
        "executed": executed,
        "valid_tokens": batch if decode else sum(counts),
        "tokens": batch if decode else batch * seq,
    }
    flop = sum(effective.values()), sum(executed.values())
    return Cost(*flop, size * read, float(size * written), "matrix", notes)


def _below(tokens: int, window: int) -> int:
    """(query, key) pairs of a causal window over so many tokens."""
    full = min(tokens, window)
    return full * (full + 1) // 2 + (tokens - full) * window


def _parts(
    kind: str, c: Config, tokens: int, pairs: tuple[float, float], case, decode: bool
) -> dict[str, float]:
    """FLOP by part; pairs: (query, key) pairs of a head over the whole batch, of self attention and of T5's
    cross attention."""
    own, cross = pairs
    per_pair = (4 * c.head_dim + _SOFTMAX) * c.heads
    gated = 3 if c.activation == "silu" else 2
    found = dict.fromkeys(PARTS, 0.0)
    found["embedding"] = tokens * (
        2.0 * c.pixels * c.hidden if c.patch else (2 + (_NORM if c.types else 0)) * c.hidden
    )
    if c.channels and not c.patch:  # two convolutions of three frames each, the first over twice the tokens
        found["embedding"] += tokens * 6.0 * c.hidden * (2 * c.channels + c.hidden)
    found["qkv"] = c.layers * 2.0 * tokens * c.hidden * c.qkv_inner
    found["attention"] = c.layers * own * per_pair
    found["output"] = c.layers * 2.0 * tokens * c.inner * c.hidden
    found["ffn"] = c.layers * tokens * (2.0 * gated * c.hidden * c.ffn + _ACTIVATION * c.ffn)
    found["norm"] = c.layers * 2.0 * _NORM * tokens * c.hidden
    found["head"] = 2.0 * case["batch"] * c.hidden * c.vocab if decode else 0.0
    if kind == "encoder-decoder":
        # The decoder: as many tokens as the encoder's padded ones, causal over themselves, then over the
        # encoder's.
        many = case["batch"] * case["seq"]
        causal = case["batch"] * case["seq"] * (case["seq"] + 1) / 2
        found["qkv"] += c.layers * (
            2.0 * many * c.hidden * 3 * c.inner + 2.0 * (many + 2 * tokens) * c.hidden * c.inner
        )
        found["attention"] += c.layers * per_pair * (causal + cross)
        found["output"] += c.layers * 4.0 * many * c.inner * c.hidden
        found["ffn"] += c.layers * many * (4.0 * c.hidden * c.ffn + _ACTIVATION * c.ffn)
        found["norm"] += c.layers * 3.0 * _NORM * many * c.hidden
        found["embedding"] += 2.0 * many * c.hidden
    return found


def _pairs(
    case, counts: list[int], decode: bool, window: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """((effective self, cross), (executed self, cross)) pairs of a head, over the batch; window: how many
    tokens a token sees at most, itself among them."""
    batch, seq = case["batch"], case["seq"]
    if decode:
        seen = sum(min(n + 1, window) for n in counts)
        return (float(seen), 0.0), (float(batch * min(seq + 1, window)), 0.0)
    within = f"sliding_window:left={window - 1},right=0"
    mask = masks.parse(within if window < seq and case["mask"] == "causal" else case["mask"])
    cut = counting.counts(mask, seq, seq)
    copies = 1 if mask.sequences else batch
    executed, cross = float(cut.executed * copies), (float(seq * sum(counts)), float(batch * seq * seq))
    if all(n == seq for n in counts):
        return (float(cut.kept * copies), cross[0]), (executed, cross[1])
    return (float(_kept(mask, seq, counts)), cross[0]), (executed, cross[1])


def _kept(mask, seq: int, counts: list[int]) -> int:
    """Kept pairs of sequences of these lengths under a mask that is laid over the padded square."""
    if mask.is_formula:  # of which a corner is the same one on fewer positions
        whole = mask.resolved(seq)
        return sum(counting.counts(whole, n, n).kept * counts.count(n) for n in set(counts))
    bound, found = mask.bind(seq, seq), dict.fromkeys(counts, 0)
    for first in range(0, seq, _ROWS):
        sums = np.cumsum(bound.block(first, min(first + _ROWS, seq)), axis=1, dtype=np.int64)
        for n in found:
            found[n] += int(sums[: max(0, n - first), n - 1].sum())
    return sum(found[n] for n in counts)
