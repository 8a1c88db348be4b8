"""attention_decode_step(): one new token per sequence, whose key and value go into the KV cache before its
query attends to it; in one launch where a kernel does that."""

from __future__ import annotations

from fusescope import kernels
from fusescope.core.errors import Unsupported
from fusescope.kernels import register_fakes
from fusescope.ops.attention.decode import attention_decode, check_call
from fusescope.ops.attention.dispatch import checks, tracing
from fusescope.ops.attention.dispatch.dispatch import empty_like
from fusescope.ops.common import rope
from fusescope.ops.layer.rope_cache import rope_cache

_OP = "attention_decode_step"
_MOST_PLACES = 1032  # of all sequences
_LEAST_BLOCKS = 96  # one per sequence and KV head


def attention_decode_step(
    q,
    k,
    v,
    cos_sin,
    positions,
    k_cache,
    v_cache,
    lengths,
    block_table=None,
    *,
    places=None,
    scale=None,
    settled=False,
    check=None,
    impl="auto",
    k_scale=None,
    v_scale=None,
):
    """Attention of q, contiguous (B, 1, H, D), over the first lengths[b] keys of each sequence, after k and v
    are written to the caches: the same bits, in the caches too, as rope_cache followed by attention_decode
    (rope_cache by the last of its ladder: on a GPU v2_vectorised; v1 rounds another product where it turns).

    q: (B, 1, H, D); k, v: (B, 1, H_kv, D). cos_sin, positions, places: as rope_cache takes them; k_cache,
    v_cache, block_table, k_scale, v_scale: as both do; lengths, which count the new token, and scale: as
    attention_decode does. No sequence reads a place that another one's token goes to.

    settled: of what this call reads, the last kernel before it on its stream wrote q, k and v alone (in a
    model's step a product writes those, and the caches were written one step earlier): on Hopper the keys of
    earlier tokens are then loaded while that kernel still runs. Otherwise what it writes may be missed.

    impl: "auto" is one launch where a kernel for this GPU takes the token and it has measured faster, else
    the two calls, as on a CPU; those refuse what attention_decode refuses (pages in float32 on a GPU).
    By name, the kernel of that one launch: v4_cluster (float16 and bfloat16, D up to 128, caches of q's
    dtype, all rows 16-byte vectors, R a multiple of 16). check: as in both. Raises TypeError and ValueError
    for arguments that do not fit, and Unsupported for what the kernel does not take.
    """
    import torch

    rope.check_shapes(q, k, v, cos_sin, k_cache, v_cache, block_table, k_scale, v_scale)
    if q.shape[1] != 1:
        raise ValueError(f"q is (B, 1, H, D), one new token per sequence; its shape is {tuple(q.shape)}")
    scales = {"k_scale": k_scale, "v_scale": v_scale}
    chosen = _choose(q, k, v, k_cache, v_cache, cos_sin, block_table) if impl == "auto" else impl
    if chosen is None:
        written = rope_cache(
            *(q, k, v, cos_sin, positions, k_cache, v_cache, block_table),
            places=places,
            check=check,
            **scales,
        )
        return attention_decode(
            *(written[0].transpose(1, 2), k_cache, v_cache, lengths),
            scale=scale,
            check=check,
            block_table=block_table,
            **scales,
        ).transpose(1, 2)
    if k_scale is not None:
        raise Unsupported('a cache of float8_e4m3fn in one launch; impl "auto" makes two')
    rope.check_tokens(q, positions, places)
    if any(t.stride(3) != 1 for t in (q, k, v)):
        raise ValueError("the elements of a head of q, k and v lie side by side; call contiguous() on them")
    check_call(q.transpose(1, 2), k_cache, v_cache, lengths, scale, impl, block_table)
    checks.no_gradient(torch, _OP, k, v)
    if checks.are_read(torch, check, lengths):
        at = positions if places is None else places
        rope.check_values(q, cos_sin, positions, at, k_cache, block_table)
        columns = 1 if block_table is None else block_table.shape[1]
        checks.cache_lengths(lengths, k_cache.shape[2] * columns)
    scale = None if scale is None else float(scale)
    given = q, k, v, cos_sin, positions, places, k_cache, v_cache, block_table, lengths, scale, bool(settled)
    if torch.compiler.is_compiling():
        tracing.load(q.device.type, "attention_decode")
        return torch.ops.fusescope.attention_decode_step.default(*given, chosen)
    return kernels.call(_OP, *given, impl=chosen)


def _choose(q, k, v, k_cache, v_cache, cos_sin, block_table) -> str | None:
    """The kernel that "auto" means for one launch; None: the two calls."""
    if q.device.type != "cuda" or k_cache.dtype != q.dtype or not _saves(q, k_cache, block_table):
        return None
    angles = cos_sin is None or cos_sin.shape[-1] % 16 == 0  # 16-byte vectors, as all rows
    if not angles or not all(map(_is_vectors, (q, k, v, k_cache, v_cache))):
        return None
    return tracing.that_takes_a_new_token(q.device.index, q.dtype, int(q.shape[3]))


def _saves(q, k_cache, block_table) -> bool:
    """Whether one launch takes less time than two calls, by shapes alone: lengths are not read."""
    # Whole steps of decoders on an H200: with a block per sequence and KV head for most multiprocessors 4.0
    # to 6.2 % less (64 sequences of 128 places: 0.5 more), else up to 1,032 places in all 3.8 less to 1.1
    # more, in the mean 1.6 less; beyond, where a sequence is split, 0.8 less to 14 more (the family's NOTES).
    columns = 1 if block_table is None else block_table.shape[1]
    few = q.shape[0] * k_cache.shape[2] * columns <= _MOST_PLACES
    return few or q.shape[0] * k_cache.shape[1] >= _LEAST_BLOCKS


def _is_vectors(t) -> bool:
    """Whether the rows of t are 16-byte vectors. torch.compile does not trace offsets; there the kernel
    refuses an odd one."""
    import torch

    *steps, column = t.stride()
    whole = torch.compiler.is_compiling() or t.storage_offset() % 8 == 0
    return whole and column == 1 and not any(step % 8 for step in steps)


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
    lengths,
    scale,
    settled,
    impl,
):
    return empty_like(q, k, v, cos_sin, positions, places, k_cache, v_cache, block_table, lengths)


register_fakes({_OP: _fake})
