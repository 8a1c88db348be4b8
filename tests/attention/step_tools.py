"""Inputs for a step of decoding that writes the new token's key and value itself, and what is wrong with
one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fusescope.measure.checking.check import compare
from fusescope.ops.attention.describe import lengths as length_texts
from fusescope.ops.common import rope
from fusescope.ops.layer.rope_cache import rope_cache

ROPE_CACHE = "v2_vectorised"
"""The kernel of rope_cache whose bits one launch gives; v1_one_element rounds the other product."""

CASES = (
    {"lengths": (1,), "heads": (1, 1)},
    {"lengths": (17, 16, 33, 1), "heads": (4, 4), "rotary": 64, "apart": True},
    {"lengths": (300, 65, 48), "heads": (8, 2), "dim": 128, "rotary": 128},
    {"lengths": (130, 2), "heads": (8, 1), "dim": 80, "rotary": 32, "by_token": True},
    {"lengths": (400, 64), "heads": (32, 2), "dim": 128, "rotary": 64, "apart": True},
    {"lengths": (70, 9), "heads": (24, 1), "dim": 80, "rotary": 80},
    {"lengths": (97, 33, 32), "heads": (4, 2), "dim": 96, "rotary": 96, "page": 32},
    {"lengths": (97, 33), "heads": (8, 1), "dim": 128, "page": 32, "lost": True},
    {"lengths": (64, 64, 10), "heads": (4, 1), "rotary": 64, "positions": (70, 64, 9), "window": 64},
    {"lengths": (20, 30, 3, 40, 9), "heads": (4, 1), "rotary": 32}
    | {"positions": (-1, 1 << 33, 2, 300, 5 - (1 << 33)), "places": (-1, 1 << 33, 2, 39, 5 - (1 << 33))},
    {"lengths": (5, 0, 40), "heads": (8, 8), "dim": 80, "places": (9, 0, 7)},
    {"lengths": (1100, 1025), "heads": (4, 2), "dim": 64, "rotary": 64},
    {"lengths": (17000,), "heads": (6, 1), "dim": 128, "rotary": 128, "page": 64},
)
"""The new key at the start of 16, at their end, alone; 1, 4, 8, 16 and 24 heads on a KV head; some of a
head turned; pages, one of them not in the cache; a ring that has wrapped; positions without angles; places
outside the cache, and such as are not seen; so many keys that several clusters have them. apart: heads of a
place side by side in the cache."""


@dataclass
class StepCase:
    """What the function takes by name, and the storages around the caches, a page more at each end."""

    given: dict
    around: tuple[torch.Tensor, torch.Tensor]

    def copy(self) -> StepCase:
        """With caches of its own."""
        around = tuple(t.clone(memory_format=torch.preserve_format) for t in self.around)
        caches = {name: t[1:-1] for name, t in zip(("k_cache", "v_cache"), around)}
        return StepCase(self.given | caches, around)


def make(
    lengths,
    heads,
    dim=64,
    rotary=0,
    by_token=False,
    page=0,
    lost=False,
    window=0,
    positions=None,
    places=None,
    apart=False,
    dtype="float16",
    device="cpu",
    seed=0,
    strided=False,
) -> StepCase:
    """q, k and v are parts of one packed product; strided: from an odd address on. What no query may see of
    the caches is NaN, the new key's place among it."""
    g = torch.Generator().manual_seed(seed)
    (h, kv), batch = heads, len(lengths)
    positions = positions or tuple(max(n - 1, 0) for n in lengths)
    places = places or (tuple(p % window for p in positions) if window else None)
    room = page or window or 16
    columns = 1 if window else -(-max(*lengths, 16) // room) + 1
    size = columns * room
    packed = torch.randn((batch, 1, h + 2 * kv, dim), generator=g).to(getattr(torch, dtype))
    caches = [torch.randn((batch, kv, size, dim), generator=g).to(packed.dtype) for _ in "kv"]
    at = torch.tensor(places or positions)
    keys = torch.arange(size)
    unseen = (keys >= torch.tensor(lengths)[:, None]) | (keys == at[:, None])
    caches = [t.masked_fill(unseen[:, None, :, None], math.nan) for t in caches]
    packed[at >= torch.tensor(lengths), :, h:] = math.inf  # a token that is not seen
    table = None
    if page:
        table = torch.randperm(batch * columns, generator=g).view(batch, columns).int()
        rows = [t.view(batch, kv, columns, page, dim).transpose(1, 2).flatten(0, 1) for t in caches]
        caches = [torch.empty_like(t).index_copy_(0, table.flatten().long(), t) for t in rows]
        if lost:  # the page of the new key, and another one
            table[0, (lengths[0] - 1) // page], table[1, 0] = -1, batch * columns
    around = []
    for t in caches:
        more = torch.full((len(t) + 2, *t.shape[1:]), 7.0, dtype=t.dtype)
        more[1:-1] = t
        around.append(more.transpose(1, 2).contiguous().transpose(1, 2) if apart else more)
    if strided:
        packed = packed.new_empty(packed.numel() + 1)[1:].view(packed.shape).copy_(packed)
    around = tuple(t.to(device) for t in around)
    packed = _moved(packed, device)
    q, k, v = packed.split((h, kv, kv), 2)
    angles = None
    if rotary:
        angles = rope.cos_sin(
            torch.arange(256 if max(lengths) < 256 else 20000), rope.inverse_frequencies(rotary)
        )
        if by_token:
            angles = angles[torch.tensor(positions)][:, None].contiguous()
    numbers = [torch.tensor(positions), None if places is None else torch.tensor(places)]
    if seed % 2 and max(map(abs, positions + (places or ()))) < 1 << 31:
        numbers = [None if t is None else t.int()[:, None] for t in numbers]
    given = dict(zip(("q", "k", "v"), (q, k, v)), cos_sin=angles, positions=numbers[0], places=numbers[1])
    given |= {"lengths": torch.tensor(lengths, dtype=torch.int32), "block_table": table}
    given = {name: t if t is None else t.to(device) for name, t in given.items()}
    return StepCase(given, around).copy()


def _moved(t, device):
    """On the device, at an odd address where it has one."""
    if device == "cpu" or not t.storage_offset():
        return t.to(device)
    return torch.empty(t.numel() + 1, dtype=t.dtype, device=device)[1:].view(t.shape).copy_(t)


def turned(case: StepCase, name: str) -> torch.Tensor:
    """q or k (B, 1, heads, D) turned as rope_cache's v2_vectorised does it: the product with the second half
    rounded to fp32, that with the first and the sum in one operation."""
    x, angles, positions = case.given[name], case.given["cos_sin"], case.given["positions"].flatten().tolist()
    if angles is None:
        return x
    out, half = x.clone(), angles.shape[-1] // 2
    for b, position in enumerate(positions):
        if angles.dim() == 3:
            row = angles[b, 0]
        else:
            inside = 0 <= position < len(angles)
            row = angles[position] if inside else torch.full_like(angles[0], math.nan)
        cos, sin = row[:half], row[half:]
        first, second = x[b, 0, :, :half], x[b, 0, :, half : 2 * half]
        out[b, 0, :, :half] = _fused(first, cos, -(second.float() * sin)).to(x.dtype)
        out[b, 0, :, half : 2 * half] = _fused(first, sin, second.float() * cos).to(x.dtype)
    return out


def _fused(a, b, c):
    return (a.double() * b.double() + c.double()).float()


def written(case: StepCase) -> StepCase:
    """A copy of the case whose caches hold the new token."""
    done = case.copy()
    given = done.given
    places, table = given["positions"] if given["places"] is None else given["places"], given["block_table"]
    page = given["k_cache"].shape[2]
    for b, place in enumerate(places.flatten().tolist()):
        if not 0 <= place < page * (1 if table is None else table.shape[1]):
            continue
        at = b if table is None else int(table[b, place // page])
        if 0 <= at < len(given["k_cache"]):
            given["k_cache"][at, :, place % page] = turned(case, "k")[b, 0]
            given["v_cache"][at, :, place % page] = given["v"][b, 0]
    return done


def wrong_write(case: StepCase, impl: str) -> str | None:
    """What rope_cache's kernel leaves that is not what written() and turned() say, or None."""
    right, done = written(case), case.copy()
    q, *_ = rope_cache(*rope_operands(done.given), places=done.given["places"], check=False, impl=impl)
    for name, found, want in zip("kv", done.around, right.around):
        if not same(found, want):
            return f"{name}_cache"
    return None if same(q, turned(case, "q")) else "q"


def rope_operands(given: dict) -> tuple:
    """What rope_cache takes by position."""
    names = "q", "k", "v", "cos_sin", "positions", "k_cache", "v_cache", "block_table"
    return tuple(given[name] for name in names)


def wrong(case: StepCase, run, attend) -> str | None:
    """What is wrong with run(given) -> out, or None. attend(q (B, H, 1, D), given): attention over caches
    that hold all keys; every bit is to be the same, and nothing else written."""
    right = written(case)
    expected = attend(turned(case, "q").transpose(1, 2), right.given).transpose(1, 2)
    done = case.copy()
    out = run(done.given)
    if out.shape != expected.shape or not out.is_contiguous():
        return f"shape {tuple(out.shape)}, strides {out.stride()}"
    for name, found, want in zip("kv", done.around, right.around):
        if not same(found, want):
            return f"{name}_cache"
    return None if same(out, expected) else f"out, by {float((out - expected).abs().nan_to_num(9).max())}"


def far(case: StepCase, out) -> str | None:
    """How a result is out of the operator's tolerance of attention in float64 over the caches with the new
    token, or None."""
    given = written(case).given
    expected, fewest = torch.zeros(out.shape, dtype=torch.float64), 1 << 30
    q, page = turned(case, "q").double().cpu(), given["k_cache"].shape[2]
    table = None if given["block_table"] is None else given["block_table"].tolist()
    for b, length in enumerate(given["lengths"].tolist()):
        at = [(b, key) for key in range(length)]
        if table is not None:
            at = [(table[b][key // page], key % page) for _, key in at]
        at = [(p, row) for p, row in at if 0 <= p < len(given["k_cache"])]
        if not at:
            continue
        pages, rows = map(torch.tensor, zip(*at))
        k, v = (given[name].double().cpu()[pages, :, rows].transpose(0, 1) for name in ("k_cache", "v_cache"))
        group = q.shape[2] // len(k)
        k, v = (t.repeat_interleave(group, 0) for t in (k, v))
        weights = (k @ q[b, 0, :, :, None] * q.shape[3] ** -0.5).softmax(1)
        expected[b, 0] = (weights.transpose(1, 2) @ v)[:, 0]
        fewest = min(fewest, len(at))
    dtype = str(out.dtype).removeprefix("torch.")
    return compare(out.cpu(), expected, length_texts.tolerance(fewest, dtype)).reason


def same(a, b) -> bool:
    """Bit for bit, but for which NaN it is."""
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(
        *(
            t.nan_to_num(0.0, math.inf, -math.inf).view(torch.int16 if t.element_size() == 2 else torch.int32)
            for t in (a, b)
        )
    )
