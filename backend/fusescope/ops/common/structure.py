"""The structure of a sparse matrix: which elements a mask keeps, as CSR or BSR index lists on a device,
shared by all heads.

What the lists are is defined in cuda/sddmm/sddmm.cuh and cuda/spmm/spmm.cuh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusescope.core.kept.bounded_cache import BoundedCache
from fusescope.masks import Mask
from fusescope.ops.attention.plan.tiles import evaluate, row_steps

LONG = 512
"""A row of more kept elements than this is shared by several warps in the kernels that know how."""

FORMATS = {"csr": 0, "bsr16": 16, "bsr32": 32, "bsr64": 64}
"""Format → side of its blocks; 0 for single elements."""

_cache: BoundedCache[Structure] = BoundedCache(16)


@dataclass(frozen=True, eq=False)
class Structure:
    """Which elements of a (seq_q, seq_k) matrix are kept; made by ``prepare``. block 0: CSR, its entries are
    elements; else BSR, its entries are square blocks of that side with at least one kept element, and rows
    and columns below count blocks.

    row_offsets: int32 (rows + 1,); columns: int32 (entries,), ascending within a row; row_of: int32
    (entries,), the row of each; order: int32 (rows,), every row once, in classes of falling length; the first
    ``long_rows`` of it hold more than LONG. bits: int64 (entries, block), bit c of word r: whether row r of
    the block keeps column c; None for CSR. kept: kept elements.
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
    block: int = 0
    bits: Any = None
    kept: int = 0

    @property
    def entries(self) -> int:
        return self.columns.numel()

    @property
    def value_shape(self) -> tuple[int, ...]:
        """Of the values of a head: (entries,), or (entries, block, block)."""
        return (self.entries, self.block, self.block) if self.block else (self.entries,)

    @property
    def density(self) -> float:
        """Share of elements kept."""
        return self.kept / (self.seq_q * self.seq_k)

    @property
    def bytes(self) -> int:
        """Size on the device of all its lists."""
        lists = (self.row_offsets, self.columns, self.row_of, self.order, self.bits)
        return sum(t.numel() * t.element_size() for t in lists if t is not None)

    def keep(self):
        """bool, of value_shape: which of the stored values belong to kept elements. CSR: all."""
        import torch

        if not self.block:
            return torch.ones(self.entries, dtype=torch.bool, device=self.device)
        return (self.bits[:, :, None] >> torch.arange(self.block, device=self.device)) & 1 == 1

    def tensor(self, values):
        """A torch sparse CSR or BSR tensor with the values of one head, or a batch of CSR ones (n, entries);
        lists are not copied."""
        import torch

        if self.block:
            return torch.sparse_bsr_tensor(
                self.row_offsets, self.columns, values, (self.seq_q, self.seq_k), check_invariants=False
            )
        lists = (self.row_offsets, self.columns)
        if values.dim() == 2:
            lists = [t.expand(values.shape[0], -1) for t in lists]
        size = (*values.shape[:-1], self.seq_q, self.seq_k)
        return torch.sparse_csr_tensor(*lists, values, size, check_invariants=False)

    def dense(self, values, first: int = 0, last: int | None = None):
        """Values (..., *value_shape) as dense rows first … last−1 of the list (elements or blocks), zeros
        elsewhere: (..., rows, seq_k), where the last block row is as short as the matrix makes it."""
        rows = self.row_offsets.numel() - 1
        last, side = rows if last is None else last, self.block or 1
        some = slice(int(self.row_offsets[first]), int(self.row_offsets[last]))
        lead = values.shape[: values.dim() - len(self.value_shape)]
        across = -(-self.seq_k // side)
        part = values.flatten(0, len(lead) - 1) if lead else values[None]
        grid = part.new_zeros((part.shape[0], (last - first) * across, side, side))
        grid[:, self.place(some) - first * across] = part[:, some].reshape(part.shape[0], -1, side, side)
        full = (
            grid.view(-1, last - first, across, side, side)
            .transpose(2, 3)
            .reshape(*lead, (last - first) * side, across * side)
        )
        return full[..., : self.seq_q - first * side, : self.seq_k]

    def place(self, some: slice = slice(None)):
        """int64: number of each entry in the grid of all elements or blocks, row by row."""
        return self.row_of[some].long() * -(-self.seq_k // (self.block or 1)) + self.columns[some]


def prepare(mask, seq_q: int, seq_k: int | None = None, device="cpu", block: int = 0) -> Structure:
    """The structure of a mask for seq_q queries and seq_k keys (as many as queries where None) on a device.

    mask: a Mask that is the same for all sequences (its structure is cached), or a bool tensor (seq_q,
    seq_k), True = keep. block: 0 for CSR, 16, 32 or 64 for BSR. Raises TypeError for another kind of mask;
    ValueError where the sizes do not fit, for a mask that differs among sequences, and for 2^31 kept elements
    or more.
    """
    import torch

    seq_k = seq_q if seq_k is None else seq_k
    if block not in FORMATS.values():
        raise ValueError(f"block is 0 (CSR) or one of 16, 32 and 64 (BSR), not {block!r}")
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    if isinstance(mask, torch.Tensor):
        return _of_tensor(mask, seq_q, seq_k, device, block)
    if not isinstance(mask, Mask):
        raise TypeError(f"a mask is a Mask or a bool tensor, not {type(mask).__name__}")
    key = (mask, seq_q, seq_k, str(device), block)
    return _cache.get_or_make(key, lambda: _of_mask(mask, seq_q, seq_k, device, block))


def refuse_sequences(mask: Mask) -> None:
    """Raise ValueError for a mask that differs among sequences."""
    if mask.sequences not in (None, 1):
        raise ValueError(
            f"one structure is shared by all sequences; mask {mask} differs among {mask.sequences}"
        )


def _of_mask(mask: Mask, seq_q: int, seq_k: int, device, block: int) -> Structure:
    refuse_sequences(mask)
    bound = mask.bind(seq_q, seq_k)
    pieces = (
        (first, evaluate(bound, 0, (first, last), (0, seq_k), device))
        for first, last in row_steps(seq_q, seq_k)
    )
    return _structure(mask, seq_q, seq_k, device, pieces, block)


def _of_tensor(mask, seq_q: int, seq_k: int, device, block: int) -> Structure:
    import torch

    if mask.dtype != torch.bool or tuple(mask.shape) != (seq_q, seq_k):
        raise ValueError(f"a mask tensor is bool ({seq_q}, {seq_k}), not {mask.dtype} {tuple(mask.shape)}")
    if mask.device != device:
        raise ValueError(f"the mask tensor is on {mask.device}, not on {device}")
    return _structure(None, seq_q, seq_k, device, [(0, mask)], block)


def _structure(mask, seq_q: int, seq_k: int, device, pieces, block: int) -> Structure:
    """From pieces (first row, bool (rows, seq_k)) that begin at multiples of 64 rows."""
    import torch

    rows, columns, bits, total, kept = [], [], [], 0, 0
    for first, keep in pieces:
        if block:
            blocks, words = _blocks(keep, block)
            kept += int(keep.sum())
            bits.append(words)
            at, first = blocks, first // block
        else:
            at = keep.nonzero()
        total += at.shape[0]
        if total >= 1 << 31:
            raise ValueError("a structure holds fewer than 2^31 entries, this mask has more")
        rows.append((at[:, 0] + first).to(torch.int32))
        columns.append(at[:, 1].to(torch.int32))
    row_of, count = torch.cat(rows), -(-seq_q // (block or 1))
    lengths = torch.bincount(row_of, minlength=count)
    offsets = torch.zeros(count + 1, dtype=torch.int32, device=device)
    offsets[1:] = lengths.cumsum(0).to(torch.int32)
    # Classes of a factor of two: neighbours, which often share keys, stay neighbours.
    size = torch.where(lengths > LONG, 64, 0) + torch.ceil(torch.log2(lengths.double().clamp(min=0.5))).long()
    order = torch.argsort(size, descending=True, stable=True).to(torch.int32)
    lists = (offsets, torch.cat(columns), row_of, order, int((lengths > LONG).sum()))
    return Structure(
        mask,
        seq_q,
        seq_k,
        device,
        *lists,
        block,
        torch.cat(bits) if block else None,
        kept if block else total,
    )


def _blocks(keep, block: int):
    """(places (n, 2) of the blocks with a kept element, row by row; their words (n, block))."""
    import torch

    rows, columns = (-(-size // block) for size in keep.shape)
    padded = torch.nn.functional.pad(
        keep, (0, columns * block - keep.shape[1], 0, rows * block - keep.shape[0])
    )
    grid = padded.view(rows, block, columns, block).transpose(1, 2)
    at = grid.any(3).any(2).nonzero()
    weights = torch.ones((), dtype=torch.int64, device=keep.device) << torch.arange(block, device=keep.device)
    return at, torch.where(grid[at[:, 0], at[:, 1]], weights, 0).sum(-1)
