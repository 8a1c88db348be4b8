"""The FlexAttention peers: compiled, with a BlockMask from the mask's own formula, both made outside the
call. By its own Triton templates, or with the same formula compiled into FlashAttention-4."""

from __future__ import annotations

import importlib.util
import time

import torch
from torch.nn.attention.flex_attention import create_block_mask

from fusescope.core.errors import Unsupported
from fusescope.ops.attention.peers import sdpa, vendor
from fusescope.ops.attention.score import values


def flash(inputs):
    """FlexAttention's FLASH backend: the mask's formula as mask_mod, and its blocks of 128 x 128 as block
    sparsity, of FlashAttention-4 (the same kernel that flash_attn.cute has for a mask_mod of one's own).

    On an H200 a CUDA graph that held several of its calls ended in an illegal address: a graph holds one.
    """
    q, k, v = (inputs[name] for name in "qkv")
    vendor.half_precision("FlexAttention's FLASH backend", q, k, v)
    refuse_other_than_hopper(q.device)
    run = make(inputs, {"BACKEND": "FLASH"})
    run.one_call_per_graph = True
    run.backend = "flex_attention (FLASH: FlashAttention-4), one call a graph"
    return run


def refuse_other_than_hopper(device) -> None:
    """Block sizes are right for Hopper alone; without the package PyTorch says so in many lines."""
    name = "FlexAttention's FLASH backend does not take this"
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (9, 0):
        raise Unsupported(f"{name}: it is compared on GPUs of compute capability 9.0, and this is {device}")
    try:
        found = importlib.util.find_spec("flash_attn.cute")
    except ImportError:
        found = None
    if found is None:
        raise Unsupported(f"{name}: FlashAttention-4 is not installed (package flash-attn-4)")


def make(inputs, kernel_options=None):
    """run() for these inputs with these kernel_options; ``run.setup_ms`` and ``run.setup_bytes`` are of the
    BlockMask, ``run.compile_ms`` of the compilation, no part of a call either.

    Raises Unsupported with the first line of PyTorch's reason where this shape, dtype or device does not
    compile.
    """
    q, k, v, bias, plan = (inputs[n] for n in ("q", "k", "v", "bias", "plan"))
    begin = time.perf_counter()
    score_mod = None
    if bias is not None:

        def score_mod(score, b, h, q_idx, kv_idx):
            return score + bias[0, h, q_idx, kv_idx]

    elif inputs.get("score") is not None:
        score_mod = values.score_mod(inputs["score"], plan.seq_q, plan.seq_k)
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
        return compiled(
            q,
            k,
            v,
            score_mod=score_mod,
            block_mask=block_mask,
            enable_gqa=gqa,
            kernel_options=kernel_options,
        )

    sdpa.tried("FlexAttention", run)
    _wait(q)
    run.setup_ms, run.setup_bytes = setup_ms, setup_bytes
    run.compile_ms = (time.perf_counter() - begin) * 1e3 - setup_ms
    run.backend = "flex_attention (inductor)"
    return run


def _wait(q) -> None:
    if q.device.type == "cuda":
        torch.cuda.synchronize(q.device)
