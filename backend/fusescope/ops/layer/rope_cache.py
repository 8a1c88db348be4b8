"""Rotary positions on queries and keys and the write of keys and values into a KV cache, bound by memory:
what stands between the QKV product and attention in a decoder."""

from __future__ import annotations

from fusescope.core.schema import Parameter
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Tolerance
from fusescope.ops.common import rope
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, complete_heads
from fusescope.ops.common.peers import torch_peers
from fusescope.ops.common.tensors import generator_for, in_one, random_tensor

NAME = "rope_cache"
TITLE = "RoPE + KV cache write"
SUMMARY = (
    "q and k turned by their positions (rotary embedding); k and v written to their places in the KV cache."
)
FAMILY = "rope_cache"
PAGES = (16, 32, 64, 128, 256)
PARAMETERS = (
    Parameter("batch", "int", 16, "sequences", low=1, high=1 << 16, typical=(1, 4, 16, 64), sweep=True),
    Parameter(
        "tokens",
        "int",
        1,
        "new tokens per sequence: 1 in decoding, the prompt in prefill",
        low=1,
        high=1 << 17,
        typical=(1, 8, 512, 2048),
        sweep=True,
    ),
    Parameter("heads", "int", 32, "heads of q", low=1, high=1 << 12, typical=(12, 16, 32, 64), sweep=True),
    Parameter(
        "kv_heads",
        "int",
        None,
        "heads of k and v, a divisor of heads; as many where left out",
        low=1,
        high=1 << 12,
        typical=(1, 2, 4, 8),
    ),
    Parameter(
        "head_dim", "int", 128, "head size, even", low=2, high=1 << 10, typical=(64, 80, 128, 256), sweep=True
    ),
    Parameter(
        "seq_max",
        "int",
        None,
        "places per sequence in the cache, at least tokens; the larger of 512 and tokens where left out",
        low=1,
        high=1 << 20,
        typical=(512, 2048, 8192),
    ),
    Parameter(
        "page",
        "choice",
        "none",
        "places of a page of a paged cache; none: one contiguous cache (batch, kv_heads, seq_max, head_dim)",
        choices=("none", *map(str, PAGES)),
    ),
)
DTYPES = ("float32", "float16", "bfloat16")
WRITES = ("k_cache", "v_cache")


def tolerance(values, dtype):
    """A sum of two products of normal numbers with a cosine and a sine, whose terms are up to 6 together:
    each operation in fp32 errs by u of that, 32 u in all. In 16 bits torch's separate operators round cosine,
    sine and the products (2 v of 6), and the sum."""
    u, v = UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[dtype]
    if dtype == "float32":
        return Tolerance(32 * u, 2 * u, "fp32 arithmetic, one rounding to float32")
    return Tolerance(12 * v, 1.01 * v, f"cosine, sine, two products and their sum rounded to {dtype}")


TOLERANCE = {d: tolerance({}, d) for d in DTYPES}


def validate(values):
    values = complete_heads(NAME, PARAMETERS, values)
    values["seq_max"] = values["seq_max"] or max(512, values["tokens"])
    if values["head_dim"] % 2:
        raise ValueError(f"head_dim is even, not {values['head_dim']}")
    if values["tokens"] > values["seq_max"]:
        raise ValueError(f"tokens is at most seq_max, {values['seq_max']}; not {values['tokens']}")
    return values


def inputs(values, dtype, device, seed, contiguous=True):
    """q, k and v as parts of one packed product, first positions int32 (B,) drawn. contiguous=False: tensors
    of their own from an odd address on, positions int64 (B, S), and caches with the heads of a place side by
    side."""
    import torch

    g = generator_for(device, seed)
    b, s, d, room = (values[n] for n in ("batch", "tokens", "head_dim", "seq_max"))
    kv = values["kv_heads"]
    counts = (values["heads"], kv, kv)
    packed = random_tensor((b, s, sum(counts), d), dtype, device, g)
    q, k, v = packed.split(counts, 2)
    positions = torch.randint(0, room - s + 1, (b,), generator=g, device=device, dtype=torch.int32)
    shape, table = (b, kv, room, d), None
    if values["page"] != "none":
        page = int(values["page"])
        columns = -(-room // page)
        shape = (b * columns, kv, page, d)
        table = torch.randperm(b * columns, generator=g, device=device).int().view(b, columns)
    caches = [random_tensor(shape, dtype, device, g) for _ in "kv"]
    if not contiguous:
        q, k, v = (_odd(t, t.shape) for t in (q, k, v))
        positions = positions.long()[:, None] + torch.arange(s, device=device)
        turned = (shape[0], shape[2], shape[1], shape[3])
        caches = [_odd(t.transpose(1, 2), turned).transpose(1, 2) for t in caches]
    inverse = rope.inverse_frequencies(d, device=device)
    return {
        "q": q,
        "k": k,
        "v": v,
        "cos_sin": rope.cos_sin(torch.arange(room, device=device), inverse),
        "positions": positions,
        "k_cache": caches[0],
        "v_cache": caches[1],
        "block_table": table,
    }


def _odd(values, shape):
    """The same values, dense from an odd address on."""
    found = values.new_empty(values.numel() + 1)[1:].view(shape)
    return found.copy_(values)


def arguments(inputs):
    return tuple(inputs.values()), {}


def call(inputs, impl):
    return rope_cache(*arguments(inputs)[0], check=False, impl=impl)  # no peer reads positions first


def joined(result):
    return in_one(result, 3)


def reference(inputs):
    doubled = {n: t.double() if n not in ("positions", "block_table") else t for n, t in inputs.items()}
    return joined(_separate(*doubled.values()))


def cost(values, dtype):
    tokens, kv, d = values["batch"] * values["tokens"], values["kv_heads"], values["head_dim"]
    moved = tokens * (values["heads"] + 2 * kv) * d * BYTES[dtype]
    flop = 3.0 * tokens * (values["heads"] + kv) * d  # two products and a sum for each element
    table = 4 * d * min(tokens, values["seq_max"]) + 4 * values["batch"]
    return Cost(flop, flop, moved + table, moved)


def _separate(q, k, v, cos_sin, positions, k_cache, v_cache, block_table):
    """Plain torch: gathered cosines and sines, the turn, and two scattered writes."""
    import torch

    if positions.dim() == 1:
        positions = positions[:, None] + torch.arange(q.shape[1], device=q.device)
    page = k_cache.shape[2]
    pages = torch.arange(q.shape[0], device=q.device)[:, None]
    if block_table is not None:
        pages = block_table.gather(1, positions.long() // page)
    row = cos_sin[positions]
    k_cache[pages, :, positions % page] = rope.turned(k, row)
    v_cache[pages, :, positions % page] = v
    return rope.turned(q, row), k_cache, v_cache


PEERS = torch_peers(
    _separate, arguments, "gathered cosines and sines, products, sums, and two scattered writes"
)


def rope_cache(
    q,
    k,
    v,
    cos_sin,
    positions,
    k_cache,
    v_cache,
    block_table=None,
    *,
    places=None,
    check=None,
    impl="auto",
    k_scale=None,
    v_scale=None,
):
    """(q turned by its positions, k_cache, v_cache): k, turned, and v are written to their places in the
    caches, which are changed in place; the rest of them is not touched.

    q: (B, S, H, D); k, v: (B, S, H_kv, D), heads dense, other strides any (parts of a packed product are not
    copied); the new q is dense. float32, float16 or bfloat16, CPU or CUDA, forward only, fp32 arithmetic.
    cos_sin: float32, dense, a table (positions, R) or a row per token (B, S, R): R / 2 cosines, then R / 2
    sines (fusescope.ops.common.rope makes both); element i of a head turns with i + R / 2, as in Llama, and
    those from R on stay. None: nothing turns, q is returned as it is.
    positions: int32 or int64, (B, S), or (B,) of each sequence's first token. places: where in the cache, in
    the same forms; None: at the positions; -1: this token is not written.
    k_cache, v_cache: (B, H_kv, L, D), D dense, other strides any. With block_table, int32 (B, columns), they
    are pages (pages, H_kv, page, D), page from 16 to 256: place p of sequence b is row p % page of page
    block_table[b, p // page].
    check: whether positions, places and pages are read first and refused by ValueError where they are
    outside, which waits for a GPU; None: on a CPU. Unchecked, what is outside is not written, and a token
    without a row in cos_sin is NaN. Two tokens for one place leave one of them there.
    k_scale, v_scale: float32 (H_kv,), dense, on q's device, positive. With them the caches are of
    torch.float8_e4m3fn and take k, turned in fp32, and v over the scale of their head, rounded once, to
    nearest even; what is larger than 448 becomes 448, NaN stays NaN.

    impl: a kernel of cuda/rope_cache, or "auto" for the last of the ladder. Raises TypeError and ValueError
    for operands that do not fit.
    """
    import torch

    from fusescope import kernels
    from fusescope.ops.attention.dispatch import checks

    rope.check_shapes(q, k, v, cos_sin, k_cache, v_cache, block_table, k_scale, v_scale)
    rope.check_tokens(q, positions, places)
    checks.no_gradient(torch, NAME, q, k, v, k_cache, v_cache)
    if checks.are_read(torch, check, positions):
        rope.check_values(
            q, cos_sin, positions, positions if places is None else places, k_cache, block_table
        )
        checks.positive(k_scale=k_scale, v_scale=v_scale)
    given = q, k, v, cos_sin, positions, places, k_cache, v_cache, block_table
    out = kernels.call(NAME, *given, impl=impl, more=(k_scale, v_scale))
    return q if cos_sin is None else out, k_cache, v_cache


def _fake(
    q,
    k,
    v,
    cos_sin,
    positions,
    places,
    k_cache,
    v_cache,
    block_table,
    impl,
    k_scale=None,
    v_scale=None,
):
    return q.new_empty((0,) if cos_sin is None else q.shape)


register_fakes({NAME: _fake})
