"""Matrix products that are wrong on purpose, with the operators' signature: every one must be caught."""

import torch


def fp16_accumulation(a, b):
    """Partial sums rounded to the storage type every 16 terms, as a kernel with 16-bit accumulators has
    them."""
    total = torch.zeros(
        (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), dtype=torch.float16
    )
    for p in range(0, a.shape[-1], 16):
        total = (total.float() + a[..., p : p + 16].float() @ b[..., p : p + 16, :].float()).half()
    return total.to(a.dtype)


def short_k(a, b):
    """Leaves the last term of every sum out."""
    return a[..., :-1] @ b[..., :-1, :]


def whole_steps_of_k(a, b):
    """Sums whole steps of 32 only: right for every size that is a multiple of 32."""
    k = a.shape[-1] // 32 * 32
    return a[..., :k] @ b[..., :k, :]


def ignores_strides(a, b):
    """Reads its operands as if they were contiguous, as raw pointers do."""
    return _from_pointer(a) @ _from_pointer(b)


def swapped_halves(a, b):
    """Rows g and g + 8 of every sixteen exchanged: a wrong fragment layout."""
    out = a @ b
    rows = torch.arange(out.shape[-2])
    partner = rows ^ 8
    return out[..., torch.where(partner < out.shape[-2], partner, rows), :]


def unwritten_column(a, b):
    """Leaves the last column as the allocator gave it."""
    right = a @ b
    out = torch.empty_like(right)
    out[..., :-1] = right[..., :-1]
    return out


def nan_corner(a, b):
    out = a @ b
    out[..., -1, -1] = float("nan")
    return out


def first_batch_only(a, b):
    """Gives every matrix of the batch the product of the first."""
    out = a @ b
    return out[(0,) * (out.dim() - 2)].expand(out.shape).clone() if out.dim() > 2 else out


def _from_pointer(t):
    return torch.as_strided(t, t.shape, torch.empty(t.shape, device="meta").stride())
