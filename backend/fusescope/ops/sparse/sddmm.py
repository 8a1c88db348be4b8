"""SDDMM: the products of queries with keys, computed only where a mask keeps them."""

from __future__ import annotations

from fusescope import masks
from fusescope.core.errors import Unsupported
from fusescope.kernels import register_fakes
from fusescope.ops.base import Peer
from fusescope.ops.common import sparse as _shared
from fusescope.ops.common import structure as _structure
from fusescope.ops.common.matmul import accumulation_tolerance
from fusescope.ops.common.structure import Structure, prepare
from fusescope.ops.common.tensors import generator_for, random_tensor

__all__ = ["Structure", "prepare", "sddmm"]

NAME = "sddmm"
TITLE = "Sampled product (SDDMM)"
SUMMARY = (
    "values[t] = q[row of t] · k[column of t] for every element t that the mask keeps, per head, "
    "accumulated in fp32."
)
FAMILY = "sddmm"
PARAMETERS = _shared.PARAMETERS
DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {d: accumulation_tolerance(64, d) for d in DTYPES}
_PIECE = 1 << 24  # scores that the reference holds at once: 128 MiB of float64


def tolerance(values, dtype):
    return accumulation_tolerance(values["head_dim"], dtype)


def validate(values):
    return _shared.validate(NAME, values)


def inputs(values, dtype, device, seed, contiguous=True):
    """q (B, H, S_q, D), k (B, H, S_k, D) and the mask's structure on the device."""
    g = generator_for(device, seed)
    b, h, sq, sk, d = (values[n] for n in ("batch", "heads", "seq", "seq_k", "head_dim"))
    q = random_tensor((b, h, sq, d), dtype, device, g, contiguous)
    k = random_tensor((b, h, sk, d), dtype, device, g, contiguous)
    return {
        "q": q,
        "k": k,
        "structure": prepare(
            masks.parse(values["mask"]), sq, sk, device, _structure.FORMATS[values["format"]]
        ),
    }


def arguments(inputs):
    """As sddmm(q, k, structure) takes them."""
    return (inputs["q"], inputs["k"], inputs["structure"]), {}


def call(inputs, impl):
    return sddmm(inputs["q"], inputs["k"], inputs["structure"], impl=impl)


def auto(inputs):
    return _shared.auto(FAMILY, inputs["structure"], inputs["q"].device)


def reference(inputs):
    """The dense product in float64, in pieces of rows, of which the kept elements are taken: (B, H,
    *value_shape)."""
    import torch

    q, k, s = inputs["q"], inputs["k"].double(), inputs["structure"]
    heads, side = q.shape[:2], s.block or 1
    keep, place, offsets = s.keep().to(q.device), s.place().to(q.device), s.row_offsets.tolist()
    across, rows = -(-s.seq_k // side), len(offsets) - 1
    out = torch.empty(*heads, *s.value_shape, dtype=torch.float64, device=q.device)
    step = max(1, _PIECE // (heads.numel() * s.seq_k * side))
    for first in range(0, rows, step):
        last = min(first + step, rows)
        some = slice(offsets[first], offsets[last])
        scores = q[:, :, first * side : last * side].double() @ k.transpose(2, 3)
        missing = (0, across * side - s.seq_k, 0, (last - first) * side - scores.shape[2])
        grid = (
            torch.nn.functional.pad(scores, missing)
            .view(*heads, last - first, side, across, side)
            .transpose(3, 4)
        )
        found = grid.reshape(*heads, -1, side, side)[:, :, place[some] - first * across]
        out[:, :, some] = found * keep[some] if s.block else found[..., 0, 0]
    return out


def cost(values, dtype):
    """2·D operations a kept element (effective) or stored one (executed); q, k and the values once each. The
    index lists, one set for all heads, are not counted."""
    sq, sk, d = (values[n] for n in ("seq", "seq_k", "head_dim"))
    return _shared.product_cost(values, dtype, lambda stored: (d * (sq + sk), stored))


def _eager(inputs):
    import torch

    q, k, s = inputs["q"], inputs["k"], inputs["structure"]
    place, side, keep = s.place(), s.block, s.keep()
    if not side:
        return lambda: (q @ k.transpose(2, 3)).flatten(2).index_select(2, place)
    rows, across = -(-s.seq_q // side), -(-s.seq_k // side)
    missing = (0, across * side - s.seq_k, 0, rows * side - s.seq_q)

    def run():
        full = torch.nn.functional.pad(q @ k.transpose(2, 3), missing)
        grid = (
            full.view(*q.shape[:2], rows, side, across, side)
            .transpose(3, 4)
            .reshape(*q.shape[:2], -1, side, side)
        )
        return grid.index_select(2, place) * keep

    return run


def _sparse(inputs):
    """torch.sparse.sampled_addmm on CSR: MKL on the CPU, cuSPARSE on CUDA."""
    import torch

    q, k, s = inputs["q"], inputs["k"], inputs["structure"]
    heads = q.shape[0] * q.shape[1]
    if s.block:
        raise Unsupported("torch.sparse.sampled_addmm of BSR; CSR is supported")
    like = s.tensor(torch.zeros(heads, s.entries, dtype=q.dtype, device=q.device))

    def run():
        rows, keys = q.reshape(heads, s.seq_q, -1), k.reshape(heads, s.seq_k, -1)
        return (
            torch.sparse.sampled_addmm(like, rows, keys.transpose(1, 2), beta=0.0)
            .values()
            .view(*q.shape[:2], s.entries)
        )

    _shared.try_once(run, f"torch.sparse.sampled_addmm of {q.dtype} on {q.device.type}")
    return run


PEERS = {
    "eager": Peer(_eager, "the dense product, of which the kept elements are taken"),
    "sparse": Peer(_sparse, "torch.sparse.sampled_addmm on CSR (cuSPARSE on CUDA); fp32 only", skips=True),
}


def sddmm(q, k, structure, *, impl="auto"):
    """The products q·k where ``structure`` keeps them, in q's dtype, accumulated in fp32: (..., entries) in
    the order of CSR, or (..., blocks, block, block) for BSR with zeros at what is not kept.

    q: (..., S_q, D), k: (..., S_k, D), float32, float16 or bfloat16, CPU or CUDA, any strides (what is not
    dense in the last dimension is copied); forward only. structure: from ``prepare(mask, S_q, S_k, device,
    block)``, shared by all leading dimensions. impl: a kernel of cuda/sddmm, or "auto": the best for the
    format. Raises TypeError and ValueError for what does not fit.
    """
    from fusescope import kernels

    _shared.check(NAME, DTYPES, structure, q=q, k=k)
    if q.dim() < 2 or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"sddmm takes q (..., S_q, D) and k (..., S_k, D), not {tuple(q.shape)} and {tuple(k.shape)}"
        )
    if (q.shape[-2], k.shape[-2]) != (structure.seq_q, structure.seq_k):
        raise ValueError(
            f"the structure is {structure.seq_q} by {structure.seq_k}; this call has {q.shape[-2]} "
            f"queries and {k.shape[-2]} keys"
        )
    if impl == "auto":
        impl = _shared.auto(FAMILY, structure, q.device)
    lists = (structure.row_offsets, structure.columns, structure.row_of, structure.bits)
    return kernels.call(NAME, q, k, *lists, structure.block, impl=impl)


def _fake(q, k, row_offsets, columns, row_of, bits, block, impl):
    return q.new_empty((*q.shape[:-2], columns.shape[0], *((block, block) if block else ())))


register_fakes({"sddmm": _fake})
