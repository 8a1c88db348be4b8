"""The specification of decoding with several query tokens, pages, windows, soft-capping, ALiBi, a bias and
sinks; inputs for it, and the comparison with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from fusescope.measure.checking.check import compare
from fusescope.ops.attention.describe import lengths as length_texts
from fusescope.ops.common.tensors import awkward
from fusescope.ops.fp8 import to_fp8

_NARROW = (
    {"lengths": (1,), "heads": (1, 1), "dim": 64},
    {"lengths": (5, 0, 70), "heads": (4, 4), "dim": 80, "tokens": 3},
    {"lengths": (16, 15, 17, 0), "heads": (8, 2), "page": 16},
    {"lengths": (130, 2), "heads": (8, 1), "dim": 96, "tokens": 8, "page": 48, "sinks": True},
    {"lengths": (400, 64, 1), "heads": (4, 1), "dim": 128, "window": 70, "tokens": 2},
    {"lengths": (257, 200), "heads": (2, 2), "dim": 64, "page": 256, "window": 1, "softcap": 2.0},
    {"lengths": (300, 31, 33), "heads": (24, 1), "dim": 40, "page": 32, "softcap": 5.0, "sinks": True},
    {"lengths": (520, 64), "heads": (6, 2), "dim": 64, "tokens": 5, "window": 200, "page": 64, "sinks": True},
    {"lengths": (200, 90), "heads": (4, 2), "dim": 128, "page": 64, "lost": True, "tokens": 2},
    {"lengths": (18000, 3), "heads": (8, 1), "dim": 96, "tokens": 2, "sinks": True},
    {"lengths": (17000,), "heads": (6, 1), "dim": 128, "page": 64, "window": 16500, "softcap": 9.0},
)
_WIDE = (
    {"lengths": (1,), "heads": (1, 1), "dim": 256},
    {"lengths": (5, 0, 70), "heads": (4, 4), "dim": 136, "tokens": 3, "softcap": 5.0},
    {"lengths": (130, 2), "heads": (8, 1), "dim": 192, "tokens": 8, "page": 48, "sinks": True},
    {"lengths": (300, 31, 17), "heads": (8, 4), "dim": 256, "window": 70, "softcap": 50.0, "sinks": True},
    {"lengths": (520, 64), "heads": (6, 2), "dim": 200, "tokens": 5, "window": 200, "page": 64},
    {"lengths": (200, 90), "heads": (4, 2), "dim": 256, "page": 16, "lost": True, "tokens": 2},
    {"lengths": (2100, 3), "heads": (24, 1), "dim": 256, "softcap": 9.0},
)
CASES = (*_NARROW, *_WIDE)
"""Lengths of 0, 1, a page and one more or less; 1, 4, 8 and 24 heads on a KV head; more rows than 16; a
window of one key, within a tile and across tiles; a page that is not in the cache (lost); so
many keys of so few heads that they take more blocks than a cluster has; heads of more than 128 columns."""
FP8_CASES = tuple(
    given | {"fp8": True}
    for given in (
        *_NARROW,
        {"lengths": (33, 65), "heads": (4, 4), "dim": 64},
        {"lengths": (77,), "heads": (8, 1), "dim": 80, "softcap": 4.0},
        {"lengths": (100, 0), "heads": (16, 2), "dim": 128},
        {"lengths": (50,), "heads": (12, 1), "dim": 128, "tokens": 8, "window": 20},
    )
)
"""The same over a cache of e4m3, and a plain one of each head size; scales differ by head."""
_BIASED = (
    {"lengths": (1,), "heads": (1, 1), "dim": 64, "alibi": True},
    {"lengths": (5, 0, 70), "heads": (4, 4), "dim": 80, "tokens": 3, "alibi": True, "bias": "bhts"},
    {"lengths": (16, 15, 17, 0), "heads": (8, 2), "page": 16, "bias": "b11s float32"},
    {"lengths": (130, 2), "heads": (8, 1), "dim": 96, "tokens": 8, "page": 48, "sinks": True, "bias": "hts"},
    {"lengths": (400, 64, 1), "heads": (4, 1), "dim": 128, "window": 70, "alibi": True, "sinks": True},
    {"lengths": (257, 200), "heads": (2, 2), "dim": 64, "page": 256, "softcap": 2.0, "bias": "1h1s float32"},
    {"lengths": (300, 31, 33), "heads": (24, 1), "dim": 40, "page": 32, "alibi": True, "sinks": True},
    {"lengths": (90, 64), "heads": (6, 2), "tokens": 5, "window": 20, "alibi": True, "bias": "ts"},
    {"lengths": (200, 90), "heads": (4, 2), "dim": 128, "page": 64, "lost": True, "bias": "bhts float32"},
    {"lengths": (40, 9), "heads": (2, 1), "sinks": True, "bias": "h11"},
    {"lengths": (18000, 3), "heads": (8, 1), "dim": 96, "sinks": True, "bias": "s"},
)
_WIDE_BIASED = (
    {"lengths": (400, 64, 1), "heads": (4, 1), "dim": 256, "window": 70, "alibi": True, "sinks": True},
    {"lengths": (130, 20), "heads": (8, 2), "dim": 160, "tokens": 4, "page": 32, "bias": "bhts"},
    {"lengths": (90, 64), "heads": (3, 3), "dim": 256, "softcap": 2.0, "bias": "b11s float32"},
)
BIASED_CASES = (*_BIASED, *_WIDE_BIASED, *(given | {"fp8": True} for given in _BIASED))
"""With ALiBi, a bias or both, and again over a cache of e4m3. bias: its dimensions, 1 where it broadcasts,
and its dtype where that is not q's. One with a dimension s masks every seventh key."""


@dataclass
class DecodeCase:
    """q (B, H, T, D), caches as the function takes them, dense (B, H_kv, S, D) in float64, and which keys
    are in the cache (B, S)."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    lengths: torch.Tensor
    dense: tuple[torch.Tensor, torch.Tensor]
    present: torch.Tensor
    options: dict = field(default_factory=dict)

    @property
    def args(self):
        return self.q, self.k, self.v, self.lengths

    @property
    def more(self) -> tuple:
        """The options as the operator takes them behind the implementation."""
        o = self.options
        given = o["block_table"], o["window"] or 0, o["softcap"], o["sinks"]
        rest = "k_scale", "v_scale", "alibi_slopes", "bias"
        return (*given, *map(o.get, rest)) if o.keys() & set(rest) else given


def make(
    lengths,
    heads,
    dim=64,
    tokens=1,
    page=0,
    window=None,
    softcap=None,
    sinks=False,
    lost=False,
    dtype="float16",
    device="cpu",
    seed=0,
    strided=False,
    fp8=False,
    alibi=False,
    bias="",
) -> DecodeCase:
    """What no query sees is NaN. page 0: a contiguous cache. strided: rows begin at odd addresses. fp8: a
    cache of e4m3, some of its values beyond the largest. bias: see BIASED_CASES."""
    g = torch.Generator().manual_seed(seed)
    h, kv = heads
    room = page or 16
    columns = -(-max(*lengths, 1) // room) + 1
    batch, size = len(lengths), columns * room

    def draw(*shape):
        return torch.randn(shape, generator=g).to(getattr(torch, dtype))

    q, k, v = draw(batch, h, tokens, dim) * 2, draw(batch, kv, size, dim), draw(batch, kv, size, dim)
    scales = {}
    if fp8:
        scales = {f"{name}_scale": torch.linspace(0.006, 0.01, kv) for name in "kv"}
        k, v = (to_fp8(t, scale) for t, scale in zip((k, v), scales.values()))
    dense, keys = (k.double(), v.double()), torch.arange(size)
    if fp8:
        dense = tuple(t * s.double()[:, None, None] for t, s in zip(dense, scales.values()))
    count = torch.tensor(lengths)
    low = (count - tokens + 1 - window).clamp(min=0) if window else torch.zeros(batch, dtype=torch.int64)
    unseen = (keys >= count[:, None]) | (keys < low[:, None])
    masked = keys % 7 == 3 if "s" in bias.partition(" ")[0] else keys < 0
    unseen |= masked
    k, v = (spoilt(t, unseen[:, None, :, None], math.nan) for t in (k, v))
    table, present = None, torch.ones(batch, size, dtype=torch.bool)
    if page:
        table = torch.randperm(batch * columns, generator=g).view(batch, columns).int()
        k, v = (_paged(t, table, page) for t in (k, v))
        if lost:
            table[0, 1], present[0, page : 2 * page] = -1, False
            table[1, 0], present[1, :page] = batch * columns, False
    if strided:
        q, k, v = _odd(q), _odd(k), _odd(v)
    given = dict(block_table=table, window=window, softcap=softcap)
    given["sinks"] = torch.linspace(-2, 3, h) if sinks else None
    given |= scales
    if alibi:
        given["alibi_slopes"] = torch.linspace(0.02, 0.7, h)
    if bias:
        seen = seen_of(count, tokens, window, present)[:, None].expand(-1, h, -1, -1)
        made = _bias(bias.split()[0], seen, g).to(getattr(torch, [dtype, *bias.split()[1:]][-1]))
        made = made.masked_fill(masked, -math.inf) if made.shape[-1] > 1 else made
        given["bias"] = awkward(made) if strided else made
    present = present & ~masked
    given = {name: t.to(device) if isinstance(t, torch.Tensor) else t for name, t in given.items()}
    q, k, v, count = (_moved(t, device) for t in (q, k, v, count.int()))
    return DecodeCase(q, k, v, count, dense, present, given)


def _bias(dimensions: str, seen, generator):
    """A drawn bias of these dimensions of b, h, t and s; NaN where no token sees it. seen: (B, H, T, S)."""
    broadcast = [i for i, n in enumerate(dimensions.rjust(4, "1")) if n == "1"]
    seen = seen.amax(broadcast, keepdim=True) if broadcast else seen
    seen = seen.reshape(seen.shape[4 - len(dimensions) :])
    return torch.randn(seen.shape, generator=generator).masked_fill(~seen, math.nan)


def spoilt(t, where, value):
    """t with the value where a bool tensor says, also of float8_e4m3fn, whose only such value is NaN."""
    where = where.to(t.device)
    if t.element_size() > 1:
        return t.masked_fill(where, value)
    assert math.isnan(value)
    return t.view(torch.uint8).masked_fill(where, 0x7F).view(t.dtype)


def _moved(t, device):
    """On the device, with the same strides and an odd address where it has one."""
    if device == "cpu":
        return t
    return (_odd if t.storage_offset() else torch.clone)(t.to(device))


def _odd(t):
    """The same values, dimensions 1 and 2 turned in memory, from an odd address on."""
    a, b, c, d = t.shape
    view = t.new_empty(t.numel() + 1)[1:].view(a, c, b, d).transpose(1, 2)
    return view.copy_(t)


def _paged(t, table, page):
    """(pages, H_kv, page, D) of a cache (B, H_kv, S, D)."""
    b, kv, s, d = t.shape
    out = t.new_empty(b * s // page, kv, page, d)
    rows = t.view(b, kv, s // page, page, d).transpose(1, 2).flatten(0, 1)
    for to, row in zip(table.flatten().tolist(), rows):  # float8_e4m3fn takes no index of tensors
        out[to] = row
    return out


def sees(case: DecodeCase) -> torch.Tensor:
    """bool (B, T, S): which keys a token sees."""
    return seen_of(case.lengths.cpu(), case.q.shape[2], case.options["window"], case.present)


def seen_of(lengths, tokens: int, window: int | None, present) -> torch.Tensor:
    """The same by its numbers; present: bool (B, S)."""
    keys = torch.arange(present.shape[1])
    position = lengths[:, None, None] - tokens + torch.arange(tokens)[:, None]
    seen = (keys <= position) & present[:, None]
    return seen & (keys > position - window) if window else seen


def reference(case: DecodeCase) -> torch.Tensor:
    """float64 (B, H, T, D); tokens without a key are zeros."""
    q, (k, v), o = case.q.double().cpu(), case.dense, case.options
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) * q.shape[3] ** -0.5
    if o["softcap"]:
        scores = o["softcap"] * torch.tanh(scores / o["softcap"])
    if "alibi_slopes" in o:
        position = case.lengths.cpu()[:, None] - q.shape[2] + torch.arange(q.shape[2])
        distance = torch.arange(k.shape[2]) - position[:, None, :, None]
        scores = scores + o["alibi_slopes"].double().cpu()[:, None, None] * distance
    if "bias" in o:
        scores = scores + o["bias"].double().cpu()
    scores = scores.masked_fill(~sees(case)[:, None], -torch.inf)
    if o["sinks"] is not None:
        sink = o["sinks"].double().cpu()[:, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sink], 3)
    weights = scores.softmax(-1).nan_to_num(0)[..., : k.shape[2]]
    return weights @ v.repeat_interleave(group, 1)


def wrong(out, case: DecodeCase) -> str | None:
    """What is wrong with a result, or None."""
    expected = reference(case)
    assert out.shape == expected.shape and out.is_contiguous()
    counts = sees(case).sum(2)
    fewest = int(counts[counts > 0].min()) if counts.any() else 1
    if "alibi_slopes" in case.options:  # see the operator's tolerance
        fewest = min(fewest, round(1 / math.tanh(case.options["alibi_slopes"].max().item() / 2)))
    fewest = max(1, round(fewest / math.e)) if "bias" in case.options else fewest
    dtype = str(out.dtype).removeprefix("torch.")
    return compare(out.cpu(), expected, length_texts.tolerance(fewest, dtype)).reason
