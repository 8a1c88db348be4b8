"""Peers that ship apart from PyTorch and exist only where they are installed: FlashAttention-4 and
cuDNN-frontend's block-sparse attention, each for the masks that it computes itself. Their just-in-time
compilation is part of making them, not of a call."""

from __future__ import annotations

import contextlib
import time

import torch

from fusescope.core.errors import Unsupported

_BLOCK = 64


def flash4(inputs):
    """FlashAttention-4 (flash_attn.cute): full, causal and sliding windows. It takes (B, S, H, D): views of
    the same memory."""
    q, k, v, window = inputs["q"], inputs["k"], inputs["v"], _window(inputs)
    half_precision("FlashAttention-4", q, k, v, inputs["bias"], inputs.get("score"))
    try:
        from flash_attn.cute import flash_attn_func
    except ImportError as error:
        raise Unsupported(f"FlashAttention-4 is not installed (package flash-attn-4): {error}") from None
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))

    def run():
        return flash_attn_func(q, k, v, **window)[0].transpose(1, 2)

    return _compiled(run, "flash_attn.cute", q)


def _window(inputs) -> dict:
    """The mask as FlashAttention's arguments, whose window counts both ends and is aligned at the end as ours
    is."""
    mask, plan = inputs["mask"], inputs["plan"]
    if plan.is_full:
        return {}
    if plan.seq_q > plan.seq_k:
        raise Unsupported(
            "FlashAttention-4 does not take this: rows without a live key (fewer keys than queries)"
        )
    if mask.name == "causal":
        return {"causal": True}
    if mask.name == "sliding_window":
        values = mask.resolved(plan.seq_k).values
        return {"window_size": (values["left"], values["right"])}
    raise Unsupported(
        f"FlashAttention-4 does not take this: mask {mask}; it takes full, causal and sliding_window"
    )


def cudnn_blocks(inputs):
    """cuDNN-frontend's block-sparse attention: lists of whole 64 x 64 blocks, so only masks that are made of
    them."""
    q, k, v, plan = inputs["q"], inputs["k"], inputs["v"], inputs["plan"]
    half_precision("block-sparse attention", q, k, v, inputs["bias"], inputs.get("score"))
    if plan.partial_tiles:
        raise Unsupported(
            f"block-sparse attention does not take this: {plan.partial_tiles} of the mask's 64 x 64 "
            "tiles are kept in part; it takes "
            "masks of whole tiles (python scripts/attention_grid.py blocks writes such)"
        )
    if plan.seq_q % _BLOCK or q.shape[3] not in (64, 96, 128):
        raise Unsupported(
            f"block-sparse attention does not take this: {plan.seq_q} queries of {q.shape[3]} "
            f"columns; it takes multiples of {_BLOCK} "
            "queries and 64, 96 or 128 columns"
        )
    try:
        from cudnn.block_sparse_attention import block_sparse_attention_forward
    except ImportError as error:
        raise Unsupported(
            f"cuDNN-frontend is not installed (package nvidia-cudnn-frontend, 1.32 or newer): {error}"
        ) from None
    index, counts = block_lists(plan, q.shape[0], q.shape[1])
    extra = {}
    if plan.seq_k % _BLOCK:
        blocks = torch.arange(-(-plan.seq_k // _BLOCK), device=q.device, dtype=torch.int32)
        extra["block_sizes"] = (plan.seq_k - _BLOCK * blocks).clamp(max=_BLOCK)
    if bool((counts == 0).any()):
        extra["allow_empty_block_nums"] = True

    def run():
        found = block_sparse_attention_forward(
            q, k, v, index, q2k_block_nums=counts, sparse_block_size=_BLOCK, layout="bhsd", **extra
        )
        return found["o_tensor"]

    return _compiled(run, "cudnn.block_sparse_attention", q)


def block_lists(plan, batch: int, heads: int):
    """(int32 (B, H, query blocks, longest list), int32 (B, H, query blocks)): the live key blocks of each
    query block, and how many."""
    rows, columns = -(-plan.seq_q // _BLOCK), -(-plan.seq_k // _BLOCK)
    if plan.is_full:
        index = torch.arange(columns, dtype=torch.int32, device=plan.device).expand(
            batch, heads, rows, columns
        )
        return index.contiguous(), torch.full(
            (batch, heads, rows), columns, dtype=torch.int32, device=plan.device
        )
    counts = plan.row_ptr[1:] - plan.row_ptr[:-1]
    place = torch.arange(plan.tile_index.numel(), device=plan.device) - plan.row_ptr[
        :-1
    ].long().repeat_interleave(counts.long())
    row = torch.arange(counts.numel(), device=plan.device).repeat_interleave(counts.long())
    index = torch.zeros(counts.numel(), max(plan.longest, 1), dtype=torch.int32, device=plan.device)
    index[row, place] = plan.tile_index
    index, counts = index.view(plan.batch, plan.heads, rows, -1), counts.view(plan.batch, plan.heads, rows)
    return index.expand(batch, heads, -1, -1).contiguous(), counts.expand(batch, heads, -1).contiguous()


def half_precision(name: str, q, k, v, bias=None, score=None) -> None:
    """Raise Unsupported for what neither takes. Both assume addresses and strides of 16 bytes without
    looking."""
    if q.dtype.itemsize != 2:
        raise Unsupported(
            f"{name} does not take this: {str(q.dtype).removeprefix('torch.')}; it takes float16 and bfloat16"
        )
    if bias is not None:
        raise Unsupported(f"{name} does not take this: a bias")
    if score is not None:
        raise Unsupported(f"{name} does not take this: a score expression")
    if any(
        t.data_ptr() % 16 or t.stride(3) != 1 or any(t.stride(i) % 8 for i in range(3)) for t in (q, k, v)
    ):
        raise Unsupported(
            f"{name} does not take this: an address or stride that is not a multiple of 16 bytes"
        )


def _compiled(run, backend: str, q):
    """run after its first call, which compiles; ``compile_ms`` is how long that took."""
    begin = time.perf_counter()
    with refusals(backend):
        with torch.no_grad():
            run()
        torch.cuda.synchronize(q.device)

    def named():
        return run()

    named.backend, named.compile_ms = backend, (time.perf_counter() - begin) * 1e3
    return named


@contextlib.contextmanager
def refusals(backend: str):
    """Turns what these packages raise for settings that they do not take into Unsupported."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (
        AssertionError,
        NotImplementedError,
        ValueError,
        TypeError,
        ImportError,
    ) as error:  # how they refuse
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise Unsupported(f"{backend} does not take this: {first}") from error
