"""Attention: softmax(scale q kᵀ + bias, where the mask keeps) v, with tiles that the mask leaves empty
skipped."""

from fusescope.ops.attention.describe.cases import DTYPES, PARAMETERS, TOLERANCE, cost, tolerance, validate
from fusescope.ops.attention.describe.inputs import arguments, auto, call, inputs, prepared, reference
from fusescope.ops.attention.functional import attention
from fusescope.ops.base import Peer
from fusescope.ops.common.peers import late

__all__ = [
    "DTYPES",
    "FAMILY",
    "NAME",
    "PARAMETERS",
    "PEERS",
    "SUMMARY",
    "TITLE",
    "TOLERANCE",
    "arguments",
    "attention",
    "auto",
    "call",
    "cost",
    "inputs",
    "prepared",
    "reference",
    "tolerance",
    "validate",
]

NAME = "attention"
TITLE = "Attention"
SUMMARY = (
    "out = softmax(q kᵀ / √D + bias, where the mask keeps) v, forward, per head; rows without a live "
    "key are zeros."
)
FAMILY = "attention"

# Peer.compiles: a further case with its BlockMask, by g++ on 2 cores, by Triton on an H200's host.
_FLEX = {"cpu": 5.0, "cuda": 2.0}
# Each is compiled once per head size and kind of mask, some ten seconds by their compiler, and reused.
_VENDOR = {"cuda": 2.0}


def _peer(module: str, *name: str | None):
    return late(f"attention.peers.{module}", *name)


PEERS = {
    "eager": Peer(_peer("dense", "eager"), "matmul + mask + softmax + matmul, every score in memory"),
    "sdpa": Peer(_peer("dense", "by_sdpa", None), "scaled_dot_product_attention, backend chosen by PyTorch"),
    "sdpa_math": Peer(_peer("dense", "by_sdpa", "MATH"), "SDPA's unfused path"),
    "sdpa_flash": Peer(
        _peer("dense", "by_sdpa", "FLASH_ATTENTION"), "SDPA's FlashAttention; on CUDA full and causal only"
    ),
    "sdpa_efficient": Peer(
        _peer("dense", "by_sdpa", "EFFICIENT_ATTENTION"),
        "SDPA's memory-efficient kernel, dense mask",
        ("cuda",),
    ),
    "sdpa_cudnn": Peer(
        _peer("dense", "by_sdpa", "CUDNN_ATTENTION"), "SDPA through cuDNN, dense mask", ("cuda",)
    ),
    "flex": Peer(
        _peer("flex", "make"),
        "FlexAttention, compiled, BlockMask from the mask's formula (128 x 128 blocks)",
        compiles=_FLEX,
        skips=True,
    ),
    "flex_flash": Peer(
        _peer("flex", "flash"),
        "FlexAttention on FlashAttention-4 (kernel option BACKEND=FLASH), on Hopper",
        ("cuda",),
        compiles=_VENDOR,
        skips=True,
        package="flash-attn-4",
    ),
    "flash4": Peer(
        _peer("vendor", "flash4"),
        "FlashAttention-4 (flash_attn.cute): full, causal, sliding windows",
        ("cuda",),
        compiles=_VENDOR,
        skips=True,
        package="flash-attn-4",
    ),
    "cudnn_blocks": Peer(
        _peer("vendor", "cudnn_blocks"),
        "cuDNN-frontend's block-sparse attention: masks of whole 64 x 64 blocks",
        ("cuda",),
        compiles=_VENDOR,
        skips=True,
        package="nvidia-cudnn-frontend",
    ),
    "composed": Peer(
        _peer("composed", "make"),
        "this project's SDDMM, softmax by rows and SpMM on CSR, scores through memory",
        skips=True,
    ),
}
