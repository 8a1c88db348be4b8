"""SDDMM: the products of queries with keys, computed only where a mask keeps them."""

from __future__ import annotations

from backend import masks
from backend.kernels import register_fakes
from backend.ops import _structure
from backend.ops._cases import BYTES, check_tensors
from backend.ops._matmul import accumulation_tolerance
from backend.ops._structure import Structure, prepare
from backend.ops._tensors import generator_for, random_tensor
from backend.ops.base import Cost, Peer

__all__ = ["Structure", "prepare", "sddmm"]

NAME = "sddmm"
TITLE = "Sampled product (SDDMM)"
SUMMARY = "values[t] = q[row of t] · k[column of t] for every element t that the mask keeps, per head, accumulated in fp32."
FAMILY = "sddmm"
PARAMETERS = _structure.PARAMETERS
DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {d: accumulation_tolerance(64, d) for d in DTYPES}
_PIECE = 1 << 24  # scores that the reference holds at once: 128 MB of float64


def tolerance(values, dtype):
    return accumulation_tolerance(values["head_dim"], dtype)


def validate(values):
    return _structure.validate(NAME, values)


def inputs(values, dtype, device, seed, contiguous=True):
    """q (B, H, S_q, D), k (B, H, S_k, D) and the mask's structure on the device."""
    g = generator_for(device, seed)
    b, h, sq, sk, d = (values[n] for n in ("batch", "heads", "seq", "seq_k", "head_dim"))
    q = random_tensor((b, h, sq, d), dtype, device, g, contiguous)
    k = random_tensor((b, h, sk, d), dtype, device, g, contiguous)
    return {"q": q, "k": k, "structure": prepare(masks.parse(values["mask"]), sq, sk, device)}


def arguments(inputs):
    """As sddmm(q, k, structure) takes them."""
    return (inputs["q"], inputs["k"], inputs["structure"]), {}


def call(inputs, impl):
    return sddmm(inputs["q"], inputs["k"], inputs["structure"], impl=impl)


def reference(inputs):
    """The dense product in float64, in pieces of rows, of which the kept elements are taken: (B, H, nnz)."""
    import torch

    q, k, s = inputs["q"], inputs["k"].double(), inputs["structure"]
    b, h, sq, _ = q.shape
    offsets, place = s.row_offsets.tolist(), s.flat().to(q.device)
    out = torch.empty(b, h, s.nnz, dtype=torch.float64, device=q.device)
    step = max(1, _PIECE // (b * h * s.seq_k))
    for first in range(0, sq, step):
        last = min(first + step, sq)
        some = slice(offsets[first], offsets[last])
        scores = q[:, :, first:last].double() @ k.transpose(2, 3)
        out[:, :, some] = scores.flatten(2)[:, :, place[some] - first * s.seq_k]
    return out


def cost(values, dtype):
    """2·D operations a kept element; q, k and the values once each. The index lists, one set for all heads, are not counted."""
    b, h, sq, sk, d = (values[n] for n in ("batch", "heads", "seq", "seq_k", "head_dim"))
    kept = _structure.kept(values["mask"], sq, sk)
    flop = 2.0 * d * kept * b * h
    notes = {"density": kept / (sq * sk), "kept elements a head": kept}
    return Cost(flop, flop, BYTES[dtype] * b * h * d * (sq + sk), BYTES[dtype] * b * h * kept, "vector", notes)


def _eager(inputs):
    q, k, place = inputs["q"], inputs["k"], inputs["structure"].flat()

    def run():
        return (q @ k.transpose(2, 3)).flatten(2).index_select(2, place)

    return run


def _sparse(inputs):
    """torch.sparse.sampled_addmm on CSR: MKL on the CPU, cuSPARSE on CUDA."""
    import torch

    q, k, s = inputs["q"], inputs["k"], inputs["structure"]
    heads = q.shape[0] * q.shape[1]
    like = s.csr(torch.zeros(heads, s.nnz, dtype=q.dtype, device=q.device))

    def run():
        rows, keys = q.reshape(heads, s.seq_q, -1), k.reshape(heads, s.seq_k, -1)
        return torch.sparse.sampled_addmm(like, rows, keys.transpose(1, 2), beta=0.0).values().view(*q.shape[:2], s.nnz)

    _structure.try_once(run, f"torch.sparse.sampled_addmm of {q.dtype} on {q.device.type}")
    return run


PEERS = {
    "eager": Peer(_eager, "the dense product, of which the kept elements are taken"),
    "sparse": Peer(_sparse, "torch.sparse.sampled_addmm on CSR (cuSPARSE on CUDA); fp32 only"),
}


def sddmm(q, k, structure, *, impl="auto"):
    """The products q·k where ``structure`` keeps them: (..., nnz) in q's dtype, in the order of CSR, accumulated in fp32.

    q: (..., S_q, D), k: (..., S_k, D), float32, float16 or bfloat16, CPU or CUDA, any strides (what is not dense in the last
    dimension is copied); forward only. structure: from ``prepare(mask, S_q, S_k, device)``, shared by all leading dimensions.
    impl: a kernel of cuda/sddmm, or "auto": the last of the ladder. Raises TypeError and ValueError for what does not fit.
    """
    from backend import kernels

    check_tensors(NAME, DTYPES, q=q, k=k)
    _structure.check(NAME, structure, q)
    if q.dim() < 2 or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"sddmm takes q (..., S_q, D) and k (..., S_k, D), not {tuple(q.shape)} and {tuple(k.shape)}")
    if (q.shape[-2], k.shape[-2]) != (structure.seq_q, structure.seq_k):
        raise ValueError(
            f"the structure is {structure.seq_q} by {structure.seq_k}; this call has {q.shape[-2]} queries and {k.shape[-2]} keys"
        )
    _structure.refuse_gradient(NAME, q, k)
    return kernels.call(NAME, q, k, structure.row_offsets, structure.columns, structure.row_of, impl=impl)


def _fake(q, k, row_offsets, columns, row_of, impl):
    return q.new_empty((*q.shape[:-2], columns.shape[0]))


register_fakes({"sddmm": _fake})
