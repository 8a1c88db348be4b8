"""What a user could pick instead of our kernels: PyTorch's own ways to compute attention, each given the
identical mask.

Where every key is live no mask is passed, and causal with as many queries as keys goes as is_causal=True,
which is that mask. Any other mask goes as an additive tensor of q's dtype (0 or −inf) built outside the call,
because a bool mask would be converted to that at every call; with a bias the two are joined in the call,
since the bias is an input that may change between calls. PyTorch gives NaN or an average where a row has no
live key: for such masks the call ends with setting these rows to zero, as its user would have to, so that the
comparison is on all rows.

Entering a backend's context costs some microseconds of CPU time a call; ``sdpa``, which chooses by itself,
does not have it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

from fusescope.core.errors import Unsupported
from fusescope.ops.attention.describe.inputs import dense_rows
from fusescope.ops.attention.peers import composed, flex, vendor
from fusescope.ops.attention.plan.tiles import row_steps
from fusescope.ops.base import Peer


@dataclass(frozen=True)
class Masked:
    """How PyTorch is told a mask. Bool tensors are (1 or B, 1, S_q, S_k), or None where no explicit mask is
    needed.

    causal: is_causal=True says it all. ready: the additive mask where there is no bias. dead: what is not
    kept, where there is a bias. empty: bool (1 or B, 1, S_q, 1), rows without a live key, or None.
    """

    causal: bool = False
    ready: Any = None
    bias: Any = None
    dead: Any = None
    empty: Any = None

    def additive(self):
        """What is added to the scores, or None."""
        if self.dead is None:
            return self.bias if self.ready is None else self.ready
        return self.dead.new_full((), float("-inf"), dtype=self.bias.dtype).where(self.dead, self.bias)


def masked(inputs) -> Masked:
    """The mask and bias of these inputs as SDPA takes them."""
    import torch

    q, bias, mask, plan = inputs["q"], inputs["bias"], inputs["mask"], inputs["plan"]
    if plan.is_full:
        return Masked(bias=bias)
    if bias is None and str(mask) == "causal" and plan.seq_q == plan.seq_k:
        return Masked(causal=True)
    keep = torch.cat(
        [
            dense_rows(mask, plan.seq_q, plan.seq_k, rows, q.device)
            for rows in row_steps(plan.seq_q, plan.seq_k)
        ],
        2,
    )
    empty = ~keep.any(-1, keepdim=True)
    empty = empty if bool(empty.any()) else None
    if bias is not None:
        return Masked(bias=bias, dead=~keep, empty=empty)
    ready = torch.zeros(keep.shape, dtype=q.dtype, device=q.device).masked_fill_(~keep, float("-inf"))
    return Masked(ready=ready, empty=empty)


def _then_zero(run, empty):
    """run, then zeros in the rows that see no key."""
    return run if empty is None else lambda: run().masked_fill_(empty, 0)


def _eager(inputs):
    import torch

    q, k, v, how = inputs["q"], inputs["k"], inputs["v"], masked(inputs)
    group, scale = q.shape[1] // k.shape[1], q.shape[3] ** -0.5
    triangle = None
    if how.causal:
        dead = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu_(1)
        triangle = torch.zeros(dead.shape, dtype=q.dtype, device=q.device).masked_fill_(dead, float("-inf"))

    def run():
        keys, values = (
            (k, v) if group == 1 else (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
        )
        scores = (q @ keys.transpose(2, 3)) * scale
        additive = how.additive() if triangle is None else triangle
        if additive is not None:
            scores = scores + additive
        return torch.softmax(scores, -1) @ values

    return _then_zero(run, how.empty)


def _sdpa(inputs):
    """The default: what torch.nn.functional.scaled_dot_product_attention chooses; ``run.backend`` says
    which."""
    import torch

    q, k, v, how = inputs["q"], inputs["k"], inputs["v"], masked(inputs)
    gqa = q.shape[1] != k.shape[1]
    function = torch.nn.functional.scaled_dot_product_attention
    taken = _choice(torch, q, k, v, how, gqa)
    _refuse_odd_addresses(taken, q, k, v)

    def call():
        return function(q, k, v, attn_mask=how.additive(), is_causal=how.causal, enable_gqa=gqa)

    return _named(_then_zero(call, how.empty), taken)


def _backend(name: str, inputs):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v, how = inputs["q"], inputs["k"], inputs["v"], masked(inputs)
    gqa = q.shape[1] != k.shape[1]
    backend = getattr(SDPBackend, name)
    function = torch.nn.functional.scaled_dot_product_attention
    with warnings.catch_warnings(record=True) as said, sdpa_kernel(backend):
        warnings.simplefilter("always")
        try:
            taken = _choice(torch, q, k, v, how, gqa)
        except RuntimeError as error:
            raise Unsupported(_reason(name, said, error)) from None
    if taken != name.lower():
        raise Unsupported(_reason(name, said, f"PyTorch would take {taken}"))
    _refuse_odd_addresses(taken, q, k, v)

    def call():
        with sdpa_kernel(backend):
            return function(q, k, v, attn_mask=how.additive(), is_causal=how.causal, enable_gqa=gqa)

    return _named(_then_zero(call, how.empty), taken)


def _refuse_odd_addresses(backend: str, *tensors) -> None:
    """PyTorch hands any address to its fused CUDA kernels, and they fault on one that is not a multiple of 16
    bytes (seen with torch 2.11 on an H200: "misaligned address", which ends the process's CUDA context)."""
    if backend != "math" and any(t.is_cuda and t.data_ptr() % 16 for t in tensors):
        raise Unsupported(
            f"{backend} does not take this: it faults on an address that is not a multiple of 16 bytes"
        )


def _choice(torch, q, k, v, how: Masked, gqa: bool) -> str:
    """The backend that SDPA takes for these arguments: flash_attention, efficient_attention, cudnn_attention,
    math …"""
    from torch.nn.attention import SDPBackend

    number = torch._fused_sdp_choice(q, k, v, how.additive(), 0.0, how.causal, enable_gqa=gqa)
    known = {int(backend): name.lower() for name, backend in SDPBackend.__members__.items()}
    return known.get(number, str(number))


def _reason(name: str, said, error) -> str:
    texts = [str(w.message).split(" (Triggered")[0].strip() for w in said]
    why = [
        t for t in texts if not t.endswith("because:") and "runtime disabled" not in t and "has been" not in t
    ]
    return f"{name.lower()} does not take this: {'; '.join(dict.fromkeys(why)) or str(error).splitlines()[0]}"


def _named(run, backend: str):
    """run with its backend noted; a function of its own, so that the note can be set."""

    def named():
        return run()

    named.backend = backend
    return named


PEERS = {
    "eager": Peer(_eager, "matmul + mask + softmax + matmul, every score in memory"),
    "sdpa": Peer(_sdpa, "scaled_dot_product_attention, backend chosen by PyTorch"),
    "sdpa_math": Peer(partial(_backend, "MATH"), "SDPA's unfused path"),
    "sdpa_flash": Peer(
        partial(_backend, "FLASH_ATTENTION"), "SDPA's FlashAttention; on CUDA full and causal only"
    ),
    "sdpa_efficient": Peer(
        partial(_backend, "EFFICIENT_ATTENTION"), "SDPA's memory-efficient kernel, dense mask", ("cuda",)
    ),
    "sdpa_cudnn": Peer(partial(_backend, "CUDNN_ATTENTION"), "SDPA through cuDNN, dense mask", ("cuda",)),
    "flex": Peer(
        flex.make,
        "FlexAttention, compiled, BlockMask from the mask's formula (128 x 128 blocks)",
        compiles=flex.COMPILES,
    ),
    "flash4": Peer(
        vendor.flash4,
        "FlashAttention-4 (flash_attn.cute): full, causal, sliding windows",
        ("cuda",),
        compiles=vendor.COMPILES,
        package="flash-attn-4",
    ),
    "cudnn_blocks": Peer(
        vendor.cudnn_blocks,
        "cuDNN-frontend's block-sparse attention: masks of whole 64 x 64 blocks",
        ("cuda",),
        compiles=vendor.COMPILES,
        package="nvidia-cudnn-frontend",
    ),
    "composed": Peer(
        composed.make, "this project's SDDMM, softmax by rows and SpMM on CSR, scores through memory"
    ),
}
