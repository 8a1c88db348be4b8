"""SpMM: a sparse matrix, whose kept elements a mask says, times a dense one."""

from __future__ import annotations

from backend import masks
from backend.kernels import register_fakes
from backend.ops import _structure
from backend.ops._cases import BYTES, check_tensors
from backend.ops._matmul import accumulation_tolerance
from backend.ops._structure import Structure, prepare
from backend.ops._tensors import generator_for, random_tensor
from backend.ops.base import Cost, Peer

__all__ = ["Structure", "prepare", "spmm"]

NAME = "spmm"
TITLE = "Sparse times dense (SpMM)"
SUMMARY = "out[r] = sum of values[t] · v[column of t] over the elements t that the mask keeps in row r, per head, in fp32."
FAMILY = "spmm"
PARAMETERS = _structure.PARAMETERS
DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {d: accumulation_tolerance(257, d) for d in DTYPES}
_PIECE = 1 << 24  # elements of the dense matrix that the reference holds at once: 128 MB of float64


def tolerance(values, dtype):
    """That of a product over as many terms as the longest row has kept elements."""
    return accumulation_tolerance(max(1, _structure.longest(values["mask"], values["seq"], values["seq_k"])), dtype)


def validate(values):
    return _structure.validate(NAME, values)


def inputs(values, dtype, device, seed, contiguous=True):
    """values (B, H, nnz), v (B, H, S_k, D) and the mask's structure on the device."""
    g = generator_for(device, seed)
    b, h, sq, sk, d = (values[n] for n in ("batch", "heads", "seq", "seq_k", "head_dim"))
    structure = prepare(masks.parse(values["mask"]), sq, sk, device)
    weights = random_tensor((b, h, structure.nnz), dtype, device, g, contiguous)
    return {"structure": structure, "values": weights, "v": random_tensor((b, h, sk, d), dtype, device, g, contiguous)}


def arguments(inputs):
    """As spmm(structure, values, v) takes them."""
    return (inputs["structure"], inputs["values"], inputs["v"]), {}


def call(inputs, impl):
    return spmm(inputs["structure"], inputs["values"], inputs["v"], impl=impl)


def reference(inputs):
    """The dense product in float64, in pieces of rows: (B, H, S_q, D)."""
    import torch

    values, v, s = inputs["values"], inputs["v"].double(), inputs["structure"]
    b, h, sk, d = v.shape
    offsets, place = s.row_offsets.tolist(), s.flat().to(v.device)
    out = torch.empty(b, h, s.seq_q, d, dtype=torch.float64, device=v.device)
    step = max(1, _PIECE // (b * h * sk))
    for first in range(0, s.seq_q, step):
        last = min(first + step, s.seq_q)
        some = slice(offsets[first], offsets[last])
        rows = torch.zeros(b, h, (last - first) * sk, dtype=torch.float64, device=v.device)
        rows[:, :, place[some] - first * sk] = values[:, :, some].double()
        out[:, :, first:last] = rows.view(b, h, last - first, sk) @ v
    return out


def cost(values, dtype):
    """2·D operations a kept element; values and v once each. The index lists, one set for all heads, are not counted."""
    b, h, sq, sk, d = (values[n] for n in ("batch", "heads", "seq", "seq_k", "head_dim"))
    kept = _structure.kept(values["mask"], sq, sk)
    flop = 2.0 * d * kept * b * h
    notes = {"density": kept / (sq * sk), "kept elements a head": kept}
    return Cost(flop, flop, BYTES[dtype] * b * h * (kept + sk * d), BYTES[dtype] * b * h * sq * d, "vector", notes)


def _eager(inputs):
    structure, values, v, place = inputs["structure"], inputs["values"], inputs["v"], inputs["structure"].flat()

    def run():
        full = values.new_zeros((*values.shape[:2], structure.seq_q * structure.seq_k))
        return full.index_copy_(2, place, values).view(*values.shape[:2], structure.seq_q, structure.seq_k) @ v

    return run


def _sparse(inputs):
    """Products of CSR tensors: all heads in one torch.bmm on CUDA (cuSPARSE), head by head on the CPU, which has no such bmm."""
    import torch

    s, values, v = inputs["structure"], inputs["values"], inputs["v"]
    heads = v.shape[0] * v.shape[1]

    def run():
        weights, rows = values.reshape(heads, s.nnz), v.reshape(heads, s.seq_k, -1)
        if v.is_cuda:
            out = torch.bmm(s.csr(weights), rows)
        else:
            out = torch.stack([torch.sparse.mm(s.csr(weights[i]), rows[i]) for i in range(heads)])
        return out.view(*v.shape[:2], s.seq_q, -1)

    _structure.try_once(run, f"torch's product with a CSR tensor of {v.dtype} on {v.device.type}")
    return run


PEERS = {
    "eager": Peer(_eager, "values put into a dense matrix of zeros, then the dense product"),
    "sparse": Peer(_sparse, "torch's product with CSR tensors (MKL on the CPU, fp32; cuSPARSE on CUDA)"),
}


def spmm(structure, values, v, *, impl="auto"):
    """The sparse matrix of ``values`` times v: (..., S_q, D) in v's dtype, accumulated in fp32; rows without elements are zeros.

    values: (..., nnz) in the order of CSR, v: (..., S_k, D), float32, float16 or bfloat16, CPU or CUDA, any strides (what is
    not dense in the last dimension is copied); forward only. structure: from ``prepare(mask, S_q, S_k, device)``, shared by all
    leading dimensions. impl: a kernel of cuda/spmm, or "auto": the last of the ladder. Raises TypeError and ValueError for
    what does not fit.
    """
    from backend import kernels

    check_tensors(NAME, DTYPES, values=values, v=v)
    _structure.check(NAME, structure, v)
    if v.dim() < 2 or values.dim() < 1 or values.shape[:-1] != v.shape[:-2]:
        raise ValueError(f"spmm takes values (..., nnz) and v (..., S_k, D), not {tuple(values.shape)} and {tuple(v.shape)}")
    if (values.shape[-1], v.shape[-2]) != (structure.nnz, structure.seq_k):
        raise ValueError(
            f"the structure keeps {structure.nnz} elements over {structure.seq_k} keys; this call has {values.shape[-1]} "
            f"values and {v.shape[-2]} keys"
        )
    _structure.refuse_gradient(NAME, values, v)
    lists = (structure.row_offsets, structure.columns, structure.order)
    return kernels.call(NAME, values, v, *lists, structure.long_rows, impl=impl)


def _fake(values, v, row_offsets, columns, order, long_rows, impl):
    return v.new_empty((*v.shape[:-2], row_offsets.shape[0] - 1, v.shape[-1]))


register_fakes({"spmm": _fake})
