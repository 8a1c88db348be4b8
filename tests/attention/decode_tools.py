"""The specification of decoding with several query tokens, pages, windows, soft-capping and sinks; inputs for
it, and the comparison with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from fusescope.measure.checking.check import compare
from fusescope.ops.attention.describe import lengths as length_texts
from fusescope.ops.fp8 import to_fp8

CASES = (
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
"""Lengths of 0, 1, a page and one more or less; 1, 4, 8 and 24 heads on a KV head; more rows than 16; a
window of one key, within a tile and across tiles; a page that is not in the cache (lost); so
many keys of so few heads that they take more blocks than a cluster has."""
FP8_CASES = tuple(
    given | {"fp8": True}
    for given in (
        *CASES,
        {"lengths": (33, 65), "heads": (4, 4), "dim": 64},
        {"lengths": (77,), "heads": (8, 1), "dim": 80, "softcap": 4.0},
        {"lengths": (100, 0), "heads": (16, 2), "dim": 128},
        {"lengths": (50,), "heads": (12, 1), "dim": 128, "tokens": 8, "window": 20},
    )
)
"""The same over a cache of e4m3, and a plain one of each head size; scales differ by head."""


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
        return given if "k_scale" not in o else (*given, o["k_scale"], o["v_scale"])


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
) -> DecodeCase:
    """What no query sees is NaN. page 0: a contiguous cache. strided: rows begin at odd addresses. fp8: a
    cache of e4m3, some of its values beyond the largest."""
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
    given = {name: t.to(device) if isinstance(t, torch.Tensor) else t for name, t in given.items()}
    q, k, v, count = (_moved(t, device) for t in (q, k, v, count.int()))
    return DecodeCase(q, k, v, count, dense, present, given)


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
    tokens, window = case.q.shape[2], case.options["window"]
    keys = torch.arange(case.dense[0].shape[2])
    position = case.lengths.cpu()[:, None, None] - tokens + torch.arange(tokens)[:, None]
    seen = (keys <= position) & case.present[:, None]
    return seen & (keys > position - window) if window else seen


def reference(case: DecodeCase) -> torch.Tensor:
    """float64 (B, H, T, D); tokens without a key are zeros."""
    q, (k, v), o = case.q.double().cpu(), case.dense, case.options
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) * q.shape[3] ** -0.5
    if o["softcap"]:
        scores = o["softcap"] * torch.tanh(scores / o["softcap"])
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
    dtype = str(out.dtype).removeprefix("torch.")
    return compare(out.cpu(), expected, length_texts.tolerance(fewest, dtype)).reason
