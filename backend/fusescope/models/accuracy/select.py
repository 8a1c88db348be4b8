"""Which elements of a tensor count when a batch is padded: those of real tokens, however the tensor is laid
out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

LAYOUTS = {"query": "bhsd", "key": "bhsd", "value": "bhsd", "scores": "bhss", "probabilities": "bhss"}
"""Named intermediates that are not (batch, seq, …): (batch, heads, seq, head_dim) and (batch, heads, seq,
seq)."""


def lengths(inputs: Mapping[str, Any], case: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Tokens of every sequence, None where no sequence is padded: each decodes one token, whatever its cache
    holds."""
    given = tuple(int(n) for n in inputs["lengths"])
    return None if case.get("phase") == "decode" or all(n == int(case["seq"]) for n in given) else given


def layout(name: str) -> str:
    """The layout of a tensor of that name."""
    return LAYOUTS.get(name.partition(":")[2], "bs")


def valid(tensor, lengths: Sequence[int] | None, form: str = "bs"):
    """The elements of real tokens, in order of sequence and position; the whole where there is no padding, or
    no token dimension."""
    if lengths is None or tensor.dim() < 2 or tensor.shape[0] != len(lengths):
        return tensor
    if form == "bhss":
        return torch.cat([tensor[i, :, :n, :n].reshape(-1) for i, n in enumerate(lengths)])
    if form == "bhsd":
        tensor = tensor.transpose(1, 2)
    if tensor.dim() < 3 or tensor.shape[1] < max(lengths):
        return tensor  # pooled
    return torch.cat([tensor[i, :n] for i, n in enumerate(lengths)])


def pair(out, ref, lengths: Sequence[int] | None, form: str = "bs", chosen: bool = False):
    """(out, ref) as float64 of one shape, on the reference's device; ``chosen``: ref is cut to the valid
    tokens already.

    ``out`` may be packed, (valid tokens, …): then it is taken as it is. ValueError where the two do not fit
    each other.
    """
    whole = ref if chosen else valid(ref, lengths, form)
    picked = out if out.shape == whole.shape else valid(out, lengths, form)
    if picked.numel() != whole.numel():
        raise ValueError(
            f"a tensor of shape {tuple(out.shape)} is not comparable with the reference's {tuple(ref.shape)}"
        )
    return picked.reshape(whole.shape).to(whole.device).double(), whole.double()
