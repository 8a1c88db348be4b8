"""The FlexAttention peer: compiled, with a BlockMask from the mask's own formula, both made outside the
call."""

from __future__ import annotations

import time

import torch
from torch.nn.attention.flex_attention import create_block_mask

from fusescope.ops.attention.peers import sdpa


def make(inputs):
    """run() for these inputs; ``run.setup_ms`` and ``run.setup_bytes`` are of the BlockMask,
    ``run.compile_ms`` of the compilation, no part of a call either.

    Raises Unsupported with the first line of PyTorch's reason where this shape, dtype or device does not
    compile.
    """
    q, k, v, bias, plan = (inputs[n] for n in ("q", "k", "v", "bias", "plan"))
    begin = time.perf_counter()
    score_mod = None
    if bias is not None:

        def score_mod(score, b, h, q_idx, kv_idx):
            return score + bias[0, h, q_idx, kv_idx]

    compiled = sdpa.compiled_flex()
    gqa = q.shape[1] != k.shape[1]
    made = {"block_mask": None, "ms": 0.0, "bytes": 0}

    def make_block_mask():
        bound = inputs["mask"].bind(plan.seq_q, plan.seq_k)
        batch = q.shape[0] if bound.per_sequence else None
        block_mask = create_block_mask(
            bound.mask_mod(q.device), batch, None, plan.seq_q, plan.seq_k, device=q.device
        )
        _wait(q)
        lists = [t for t in block_mask.as_tuple() if isinstance(t, torch.Tensor)]
        size = sum(t.numel() * t.element_size() for t in lists)
        made.update(block_mask=block_mask, ms=(time.perf_counter() - begin) * 1e3, bytes=size)

    if not plan.is_full:
        sdpa.tried("FlexAttention", make_block_mask)
    block_mask, setup_ms, setup_bytes = made.values()

    def run():
        return compiled(q, k, v, score_mod=score_mod, block_mask=block_mask, enable_gqa=gqa)

    sdpa.tried("FlexAttention", run)
    _wait(q)
    run.setup_ms, run.setup_bytes = setup_ms, setup_bytes
    run.compile_ms = (time.perf_counter() - begin) * 1e3 - setup_ms
    run.backend = "flex_attention (inductor)"
    return run


def _wait(q) -> None:
    if q.device.type == "cuda":
        torch.cuda.synchronize(q.device)
