"""RoPE with the cache write, computed token by token in Python, and the cases that only it decides: what lies
outside, partial rotation, rows of angles per token, no angles."""

from __future__ import annotations

import math

import torch

from fusescope.ops.fp8 import MOST, to_fp8
from fusescope.ops.layer.rope_cache import rope_cache

B, S, HEADS, KV, ROOM, PAGE = 3, 4, 4, 2, 48, 16
POSITIONS = [[0, 2, 1, 31], [-1, 7, 32, 30], [5, 5, 9, 1 << 20]]  # of 32 rows of angles
PLACES = [[0, 47, 48, -1], [31, -1, -(1 << 33), 5], [46, 45, 17, 1 << 33]]
TABLE = [[4, 0, 7], [-1, 3, 1], [2, 5, 8]]  # of 8 pages: two do not exist


def expected(q, k, v, cos_sin, positions, places, k_cache, v_cache, table):
    """(q, k_cache, v_cache) in float64; cos_sin: (P, R), (B, S, R) or None."""
    out, keys, values = q.double(), k_cache.double().clone(), v_cache.double().clone()
    page = k_cache.shape[2]
    for b in range(q.shape[0]):
        for s in range(q.shape[1]):
            row = None
            if cos_sin is not None and cos_sin.dim() == 3:
                row = cos_sin[b, s]
            elif cos_sin is not None and 0 <= positions[b][s] < len(cos_sin):
                row = cos_sin[positions[b][s]]
            size = 0 if cos_sin is None else cos_sin.shape[-1]
            out[b, s] = _turned(q[b, s].double(), row, size)
            place = places[b][s]
            if 0 <= place < page * (1 if table is None else len(table[b])):
                at = b if table is None else table[b][place // page]
                if 0 <= at < len(keys):
                    keys[at, :, place % page] = _turned(k[b, s].double(), row, size)
                    values[at, :, place % page] = v[b, s].double()
    return out, keys, values


def _turned(heads, row, size):
    found = heads.clone()
    for i in range(size // 2):
        c, s = (math.nan, math.nan) if row is None else (float(row[i]), float(row[i + size // 2]))
        found[:, i] = heads[:, i] * c - heads[:, i + size // 2] * s
        found[:, i + size // 2] = heads[:, i + size // 2] * c + heads[:, i] * s
    return found


def what_is_wrong(impl: str, dtype, device="cpu", seed: int = 0) -> str | None:
    """The first special case in which the implementation deviates, or writes outside of its caches."""
    g = torch.Generator().manual_seed(seed)

    def randn(*shape, like=dtype):
        return torch.randn(shape, generator=g).to(device, like)

    for depth, size, by_token, paged in (
        (16, 16, False, False),
        (16, 8, False, True),  # half of a head turns
        (24, 16, True, True),
        (10, 6, False, False),  # no 16-byte vectors
        (16, 0, False, True),
    ):
        q, k, v = randn(B, S, HEADS + 2 * KV, depth).split((HEADS, KV, KV), 2)
        cos_sin = None
        if size:
            cos_sin = randn(*((B, S) if by_token else (32,)), size, like=torch.float32)
        pages, room = (8, PAGE) if paged else (B, ROOM)
        around = [
            randn(pages + 2, KV, room, depth) for _ in "kv"
        ]  # a page before the cache and one behind it
        before = [t.clone() for t in around]
        k_cache, v_cache = (t[1:-1] for t in around)
        positions, places = (torch.tensor(t, device=device) for t in (POSITIONS, PLACES))
        table = torch.tensor(TABLE, dtype=torch.int32, device=device) if paged else None
        right = expected(q, k, v, cos_sin, POSITIONS, PLACES, k_cache, v_cache, TABLE if paged else None)
        found = rope_cache(
            q,
            k,
            v,
            cos_sin,
            positions,
            k_cache,
            v_cache,
            table,
            places=places,
            check=False,
            impl=impl,
        )
        near = {"rtol": 0, "atol": {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]}
        for name, one, other in zip(("q", "k_cache", "v_cache"), found, right):
            if not torch.allclose(one.double(), other, **near, equal_nan=True):
                return f"{name} of head size {depth}, {size} turned, paged {paged}"
        if any(not torch.equal(t[[0, -1]], b[[0, -1]]) for t, b in zip(around, before)):
            return f"it wrote outside of the caches, head size {depth}, paged {paged}"
    return None


def what_is_wrong_in_fp8(impl: str, dtype, device="cpu", seed: int = 0) -> str | None:
    """The first case in which caches of e4m3 are not what is specified: v bit for bit, k within half a last
    place of k in float64, other places as they were. Values beyond the largest number, infinities and NaN are
    among them."""
    g = torch.Generator().manual_seed(seed)
    for depth, size, paged, apart in (
        (16, 16, False, 0),
        (64, 32, True, 0),
        (24, 8, False, 1),
        (10, 0, True, 0),
    ):
        packed = torch.randn((B, S, HEADS + 2 * KV, depth), generator=g).to(dtype)
        packed[0, :2, HEADS:, 0], packed[1, 2, HEADS:, 1] = 1e4, -9e3  # turned k, and v
        packed[2, 0, HEADS + KV :, 2], packed[2, 0, HEADS + KV :, 3] = math.inf, math.nan
        packed[2, 2, HEADS + KV :] = torch.linspace(-0.02, 0.02, depth).to(dtype)  # subnormal numbers
        q, k, v = packed.to(device).split((HEADS, KV, KV), 2)
        cos_sin = torch.randn((32, size), generator=g).to(device) if size else None
        scales = [torch.linspace(low, 1.5, KV).to(device) for low in (0.3, 0.7)]
        pages, room = (8, PAGE) if paged else (B, ROOM)
        before = torch.randint(0, 127, (2, pages, KV, room, depth + apart), generator=g, dtype=torch.uint8)
        caches = before.to(device).view(torch.float8_e4m3fn)[..., :depth].unbind()
        positions, places = (torch.tensor(t, device=device) for t in (POSITIONS, PLACES))
        table = torch.tensor(TABLE, dtype=torch.int32, device=device) if paged else None
        given = [t.cpu() for t in (q, k, v, *caches)]
        none = [
            torch.full(t.shape, -1e300, dtype=torch.float64) for t in given[3:]
        ]  # where nothing is written
        angles = None if cos_sin is None else cos_sin.cpu()
        right = expected(*given[:3], angles, POSITIONS, PLACES, *none, TABLE if paged else None)
        rope_cache(
            *(q, k, v, cos_sin, positions, *caches, table),
            places=places,
            check=False,
            impl=impl,
            k_scale=scales[0],
            v_scale=scales[1],
        )
        for name, found, want, old, scale in zip("kv", caches, right[1:], before, (s.cpu() for s in scales)):
            found, old, written = found.cpu(), old[..., :depth], want != -1e300
            if not torch.equal(found.view(torch.uint8)[~written], old[~written]):
                return f"{name}: it wrote elsewhere, head size {depth}"
            values = to_fp8(want, scale).float()[written]
            numbers = found.float()[written]
            if name == "v" and not torch.equal(numbers.nan_to_num(1e3), values.nan_to_num(1e3)):
                return f"v is not rounded to nearest even, head size {depth}"
            exact = (want / scale.double()[:, None, None]).clamp(-MOST, MOST)[written]
            off = (numbers.double() - exact).abs() - exact.abs() * (2**-4 + 1e-5) - 2**-10 - 1e-5
            if bool((off > 0).any()) or not torch.equal(numbers.isnan(), exact.isnan()):
                return f"{name} is not the nearest number, head size {depth}, {size} turned, paged {paged}"
    return None
