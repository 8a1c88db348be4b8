"""Weight-only quantisation: the weights of a decoder's layers in 8 bits with a scale per output channel, the
embedding and the head as they are.

For few tokens at a time (linear_weight_only.FEW_ROWS), as in decoding, products read them as they are. For
more, as in a prompt, they are brought back to the model's dtype before each product, which takes longer than
without quantisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from fusescope.models.describe import tree
from fusescope.models.describe.family import Config, quantises
from fusescope.ops.layer import linear_weight_only as operator

_ROWS = 1 << 22  # logits of a piece of figures(), in float64


@dataclass(frozen=True)
class Quantised:
    """A weight (N, K) as values in 8 bits, rows side by side, and float32 scales (N, 1): their product."""

    values: Any
    scales: Any

    def dequantised(self, dtype):
        """(N, K) in a floating dtype, rounded once."""
        return operator.dequantised(self.values, self.scales[:, 0], dtype)

    def product(self, x, bias=None, activation=None, residual=None):
        """activation(x weightᵀ + bias) + residual, as fusescope.ops.layer.linear has it."""
        return operator.product(x, self.values, self.scales[:, 0], bias, activation, residual)

    @property
    def bytes(self) -> int:
        return self.values.numel() + 4 * self.scales.numel()


def quantise(weight, kind: str) -> Quantised:
    """Of a weight (N, K); kind: "int8" or "fp8", as linear_weight_only.quantised has them."""
    values, scales = operator.quantised(weight.float(), kind)
    return Quantised(values.contiguous(), scales[:, None])


def layers(weights: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Our weights (weights.ours) with the matrices of the layers quantised."""
    return {name: quantise(w, kind) if quantises(name) else w for name, w in weights.items()}


def rounding(family: ModuleType, config: Config, kind: str) -> Callable[[str, Any], Any]:
    """change(name, parameter of any precision) → what quantisation leaves of it, by the names of the Hugging
    Face module: what the mode is checked against. A scale is of an output channel, so rows that are put
    together change nothing."""
    turned = {
        weight.name(layer): weight.transposed
        for weight, layer in tree.rows(family, config)
        if weight.ours and quantises(weight.ours)
    }

    def change(name: str, tensor):
        if name not in turned:
            return tensor
        found = quantise(tensor.t() if turned[name] else tensor, kind)
        exact = found.values.to(tensor.dtype) * found.scales.to(tensor.dtype)
        return exact.t() if turned[name] else exact

    return change


def figures(out, exact, logits: bool) -> dict[str, float | None]:
    """How far a quantised result is from the model without quantisation in float64, of the same shape.

    relative_l2: error over size, both as 2-norms. Of logits (…, vocab) besides, over all tokens: kl_mean and
    kl_most, the Kullback-Leibler divergence of the next token's distribution from the exact one, in nats;
    same_token: the share of them whose likeliest token is the same. None of hidden states."""
    exact = exact.to(out.device)
    error = float((out.double() - exact.double()).norm() / exact.double().norm())
    found = {"relative_l2": error, "kl_mean": None, "kl_most": None, "same_token": None}
    if logits:
        vocab = out.shape[-1]
        given, right = out.reshape(-1, vocab), exact.reshape(-1, vocab)
        kl, same = [], 0
        for a, b in zip(*(t.split(max(1, _ROWS // vocab)) for t in (given, right))):
            q, p = a.double().log_softmax(-1), b.double().log_softmax(-1)
            kl.append((p.exp() * (p - q)).sum(-1))
            same += int((a.argmax(-1) == b.argmax(-1)).sum())
        kl = torch.cat(kl).clamp(min=0)
        found |= {"kl_mean": float(kl.mean()), "kl_most": float(kl.max()), "same_token": same / len(kl)}
    return found
