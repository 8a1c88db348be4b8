"""The FlexAttention peer: compiled, with a BlockMask from the mask's own formula, both made outside the
call."""

from __future__ import annotations

import time

from fusescope.core.errors import Unsupported

_RECOMPILES = (
    4096  # every case is a graph of its own; beyond PyTorch's default of 8 flex would silently run unfused
)
COMPILES = {"cpu": 5.0, "cuda": 2.0}
"""Peer.compiles: a further case with its BlockMask, by g++ on 2 cores, by Triton on an H200's host."""


def make(inputs):
    """run() for these inputs; ``run.setup_ms`` and ``run.setup_bytes`` are of the BlockMask,
    ``run.compile_ms`` of the compilation, no part of a call either.

    Raises Unsupported with the first line of PyTorch's reason where this shape, dtype or device does not
    compile.
    """
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v, bias, plan = (inputs[n] for n in ("q", "k", "v", "bias", "plan"))
    begin = time.perf_counter()
    score_mod = None
    if bias is not None:

        def score_mod(score, b, h, q_idx, kv_idx):
            return score + bias[0, h, q_idx, kv_idx]

    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, _RECOMPILES)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, _RECOMPILES)
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    gqa = q.shape[1] != k.shape[1]
    try:
        block_mask, setup_ms, setup_bytes = None, 0.0, 0
        if not plan.is_full:
            bound = inputs["mask"].bind(plan.seq_q, plan.seq_k)
            batch = q.shape[0] if bound.per_sequence else None
            block_mask = create_block_mask(
                bound.mask_mod(q.device), batch, None, plan.seq_q, plan.seq_k, device=q.device
            )
            _wait(torch, q)
            setup_ms = (time.perf_counter() - begin) * 1e3
            setup_bytes = sum(
                t.numel() * t.element_size() for t in block_mask.as_tuple() if isinstance(t, torch.Tensor)
            )

        def run():
            return compiled(q, k, v, score_mod=score_mod, block_mask=block_mask, enable_gqa=gqa)

        run()  # compiles; in the caller's gradient mode, because another one later would compile again
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the compiler's own exception classes are many and not public
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise Unsupported(
            f"FlexAttention does not take this: {lines[0] if lines else type(error).__name__}"
        ) from error
    _wait(torch, q)
    run.setup_ms, run.setup_bytes = setup_ms, setup_bytes
    run.compile_ms = (time.perf_counter() - begin) * 1e3 - setup_ms
    run.backend = "flex_attention (inductor)"
    return run


def _wait(torch, q) -> None:
    if q.device.type == "cuda":
        torch.cuda.synchronize(q.device)
