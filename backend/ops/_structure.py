"""The structure of a sparse matrix: which elements a mask keeps, as CSR index lists on a device, shared by all heads.

What the lists are is defined in cuda/sddmm/sddmm.cuh and cuda/spmm/spmm.cuh.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from backend import masks
from backend.core.errors import Unsupported
from backend.masks import Mask, layout
from backend.ops.attention.tiles import evaluate, row_steps
from backend.ops.base import Parameter, check_int

LONG = 512
"""A row of more kept elements than this is shared by several warps in the kernels that know how."""

PARAMETERS = (
    Parameter("batch", "int", 1, "sequences", low=1, high=1 << 16, typical=(1, 2, 4, 8, 16), sweep=True),
    Parameter("heads", "int", 12, "heads a sequence", low=1, high=1 << 12, typical=(1, 2, 4, 8, 12, 16, 32), sweep=True),
    Parameter("seq", "int", 512, "rows: queries a sequence", low=1, high=1 << 17, typical=(128, 256, 512, 1024, 2048, 4096, 8192, 16384), sweep=True),
    Parameter("seq_k", "int", None, "columns: keys a sequence; as many as queries where left out", low=1, high=1 << 17, typical=(128, 512, 2048, 4096)),
    Parameter("head_dim", "int", 64, "head size", low=1, high=1 << 12, typical=(32, 64, 128, 256), sweep=True),
    Parameter("mask", "mask", "sliding_window", "which elements are kept: name[:key=value,…]; defaults depend on the length"),
    Parameter("format", "choice", "csr", "how the kept elements are stored", choices=("csr",)),
)  # fmt: skip
"""The keys of a case that SDDMM and SpMM share."""

_KEPT = 16  # structures in the cache; the least recently used goes first
_cache: OrderedDict[tuple, Structure] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class Structure:
    """Which elements of a (seq_q, seq_k) matrix are kept; made by ``prepare``.

    row_offsets: int32 (seq_q + 1,); columns: int32 (nnz,), ascending within a row; row_of: int32 (nnz,), the row of each;
    order: int32 (seq_q,), every row once, in classes of falling length; the first ``long_rows`` of it hold more than LONG.
    """

    mask: Mask | None
    seq_q: int
    seq_k: int
    device: Any
    row_offsets: Any
    columns: Any
    row_of: Any
    order: Any
    long_rows: int

    @property
    def nnz(self) -> int:
        return self.columns.numel()

    @property
    def density(self) -> float:
        return self.nnz / (self.seq_q * self.seq_k)

    @property
    def bytes(self) -> int:
        """Size on the device of all its lists."""
        return 4 * sum(t.numel() for t in (self.row_offsets, self.columns, self.row_of, self.order))

    def csr(self, values):
        """A torch sparse CSR tensor (or a batch of them) with these values (nnz,) or (n, nnz); the lists are not copied."""
        import torch

        lists = (self.row_offsets, self.columns)
        if values.dim() == 2:
            lists = [t.expand(values.shape[0], -1) for t in lists]
        size = (*values.shape[:-1], self.seq_q, self.seq_k)
        return torch.sparse_csr_tensor(*lists, values, size, check_invariants=False)

    def dense(self, values):
        """values (..., nnz) as a dense (..., seq_q, seq_k) tensor with zeros elsewhere."""
        out = values.new_zeros((*values.shape[:-1], self.seq_q * self.seq_k))
        out[..., self.flat()] = values
        return out.view(*values.shape[:-1], self.seq_q, self.seq_k)

    def flat(self):
        """int64 (nnz,): place of each kept element in the dense matrix."""
        return self.row_of.long() * self.seq_k + self.columns


def prepare(mask, seq_q: int, seq_k: int | None = None, device="cpu") -> Structure:
    """The structure of a mask for seq_q queries and seq_k keys (as many as queries where None) on a device.

    mask: a Mask that is the same for all sequences (its structure is cached), or a bool tensor (seq_q, seq_k), True = keep. Raises
    TypeError for another kind of mask; ValueError where the sizes do not fit, for a mask that differs among sequences, and
    for 2^31 kept elements or more.
    """
    import torch

    seq_k = seq_q if seq_k is None else seq_k
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    if isinstance(mask, torch.Tensor):
        return _of_tensor(mask, seq_q, seq_k, device)
    if not isinstance(mask, Mask):
        raise TypeError(f"a mask is a Mask or a bool tensor, not {type(mask).__name__}")
    key = (mask, seq_q, seq_k, str(device))
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    made = _of_mask(mask, seq_q, seq_k, device)
    with _lock:
        _cache[key] = made
        while len(_cache) > _KEPT:
            _cache.popitem(last=False)
    return made


def validate(op: str, values) -> dict:
    """The complete case of SDDMM or SpMM; mask in its canonical text. Raises ValueError as every operator's validate does."""
    known = {p.name: p for p in PARAMETERS}
    unknown = set(values) - set(known)
    if unknown:
        raise ValueError(f"{op} takes {', '.join(known)}, not {', '.join(sorted(unknown))}")
    case = {name: p.default if values.get(name) is None else values[name] for name, p in known.items()}
    case["seq_k"] = case["seq"] if case["seq_k"] is None else case["seq_k"]
    case |= {name: check_int(p, case[name]) for name, p in known.items() if p.kind == "int"}
    if case["format"] not in known["format"].choices:
        raise ValueError(f"format is {' or '.join(known['format'].choices)}, not {case['format']!r}")
    mask = masks.parse(case["mask"])
    mask.bind(case["seq"], case["seq_k"])
    _refuse_sequences(mask)
    return case | {"mask": str(mask)}


def check(op: str, structure, tensor) -> None:
    """TypeError or ValueError unless ``structure`` is one, on the tensor's device."""
    if not isinstance(structure, Structure):
        raise TypeError(f"{op} takes a Structure made by prepare(mask, seq_q, seq_k, device), not {type(structure).__name__}")
    if structure.columns.device != tensor.device:
        raise ValueError(f"the structure is on {structure.columns.device}, the operands are on {tensor.device}")


def refuse_gradient(op: str, *tensors) -> None:
    """Unsupported where an operand requires a gradient that these forward kernels would not give."""
    import torch

    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        raise Unsupported(f"{op} is forward only, but an input requires a gradient; call it under torch.no_grad()")


def try_once(run, what: str) -> None:
    """Call a peer once; Unsupported with torch's words where torch does not do it for this dtype or device."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "beta state"
            run()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError) as error:
        if "CUDA error" in str(error):
            raise
        raise Unsupported(f"{what}: {str(error).splitlines()[0][:160]}") from None


def kept(mask: str, seq_q: int, seq_k: int) -> int:
    """Kept elements of a mask, without torch."""
    return _counts(mask, seq_q, seq_k)[0]


def longest(mask: str, seq_q: int, seq_k: int) -> int:
    """Kept elements of its longest row."""
    return _counts(mask, seq_q, seq_k)[1]


@lru_cache(maxsize=256)
def _counts(mask: str, seq_q: int, seq_k: int) -> tuple[int, int]:
    rows = layout.tiles(masks.parse(mask), seq_q, seq_k).row_counts
    return int(rows.sum(dtype="int64")), int(rows.max())


def _refuse_sequences(mask: Mask) -> None:
    if mask.sequences not in (None, 1):
        raise ValueError(f"one structure is shared by all sequences; mask {mask} differs among {mask.sequences}")


def _of_mask(mask: Mask, seq_q: int, seq_k: int, device) -> Structure:
    _refuse_sequences(mask)
    bound = mask.bind(seq_q, seq_k)
    pieces = ((first, evaluate(bound, 0, (first, last), (0, seq_k), device)) for first, last in row_steps(seq_q, seq_k))
    return _structure(mask, seq_q, seq_k, device, pieces)


def _of_tensor(mask, seq_q: int, seq_k: int, device) -> Structure:
    import torch

    if mask.dtype != torch.bool or tuple(mask.shape) != (seq_q, seq_k):
        raise ValueError(f"a mask tensor is bool ({seq_q}, {seq_k}), not {mask.dtype} {tuple(mask.shape)}")
    if mask.device != device:
        raise ValueError(f"the mask tensor is on {mask.device}, not on {device}")
    return _structure(None, seq_q, seq_k, device, [(0, mask)])


def _structure(mask, seq_q: int, seq_k: int, device, pieces) -> Structure:
    import torch

    rows, columns, total = [], [], 0
    for first, keep in pieces:
        at = keep.nonzero()
        total += at.shape[0]
        if total >= 1 << 31:
            raise ValueError("a structure holds fewer than 2^31 kept elements, this mask has more")
        rows.append((at[:, 0] + first).to(torch.int32))
        columns.append(at[:, 1].to(torch.int32))
    row_of = torch.cat(rows)
    lengths = torch.bincount(row_of, minlength=seq_q)
    offsets = torch.zeros(seq_q + 1, dtype=torch.int32, device=device)
    offsets[1:] = lengths.cumsum(0).to(torch.int32)
    # Classes of a factor of two: neighbours, which often share keys, stay neighbours.
    size = torch.where(lengths > LONG, 64, 0) + torch.ceil(torch.log2(lengths.double().clamp(min=0.5))).long()
    order = torch.argsort(size, descending=True, stable=True).to(torch.int32)
    long_rows = int((lengths > LONG).sum())
    return Structure(mask, seq_q, seq_k, device, offsets, torch.cat(columns), row_of, order, long_rows)
