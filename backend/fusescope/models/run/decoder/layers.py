"""The layers of a decoder over weights that are packed once: query, key and value together, gate and up
together; products with bias, activation and residual in one operator, attention of ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import ModuleType
from typing import Any

import torch

from fusescope.models.describe.family import Config
from fusescope.models.run import weights
from fusescope.models.run.decoder import quantised as quantisation
from fusescope.models.run.decoder.one_launch import OneLaunch
from fusescope.ops.common import rope
from fusescope.ops.layer.bias_residual_layernorm import bias_residual_layernorm
from fusescope.ops.layer.linear import linear, linear_swiglu
from fusescope.ops.layer.rmsnorm_residual import rmsnorm_residual
from fusescope.ops.layer.swiglu import swiglu

Attend = Callable[[int, Any, Any, Any, Any], Any]
"""(layer, query (B, S, H, D), key and value (B, S, H_kv, D), angles) → (B, S, H, D). angles: what query and
key are still to be turned by, as rope_cache takes it; None where positions are embedded."""
_OUTPUTS = 8  # of a product for few rows a multiple of this
Record = Callable[[str, Any], None]
Mark = Callable[[str], None]


class Layers:
    """A family's layers with the weights of a loaded Hugging Face module, which stay as they are; what is put
    together or turned is a copy, so later changes of the module's weights are not seen.

    A call's record(name, tensor) gets its outputs in order, by the name of the Hugging Face module that has
    the same (the family's MODULES); mark(part) is called after each operation with its layer part.
    quantised: "int8" or "fp8", what the matrices of the layers are kept in."""

    def __init__(self, family: ModuleType, config: Config, module: Any, quantised: str | None = None):
        self.config, self.modules = config, family.MODULES
        found = weights.ours(family, config, module)
        # Products for few rows read no matrix that is kept transposed, as GPT-2's are, and write no rows of
        # logits that are no multiples of 16 bytes apart, as its vocabulary has them.
        self.weights = {name: weight.contiguous() for name, weight in found.items()}
        self.vocab = len(found["head.weight"])
        if more := -self.vocab % _OUTPUTS:
            self.weights["head.weight"] = torch.nn.functional.pad(found["head.weight"], (0, 0, 0, more))
        if quantised:
            self.weights = quantisation.layers(self.weights, quantised)
        self.rotary = next((m for n, m in module.named_modules() if n.endswith("rotary_emb")), None)

    def embed(self, ids, places, record: Record | None = None, mark: Mark | None = None):
        """(B, S, width) of token ids and their positions, int64 (B or 1, S)."""
        x = torch.nn.functional.embedding(ids, self.weights["word"])
        if "position" in self.weights:
            x = x + torch.nn.functional.embedding(places, self.weights["position"])
        self._said(record, "embedded", x)
        if mark:
            mark("embedding")
        return x

    def angles(self, places):
        """float32 (B, S, R), cosines and sines of rotary positions; None where a position is embedded."""
        if self.rotary is None:
            return None
        # of the kind "dynamic" what a longer sequence left behind is not to be seen
        own = "original_inv_freq" if self.rotary.rope_type == "dynamic" else "inv_freq"
        inverse = getattr(self.rotary, own).to(places.device)
        return rope.cos_sin(places, inverse, self.rotary.attention_scaling)

    def __call__(self, x, places, attend: Attend, record: Record | None = None, mark: Mark | None = None):
        """(B, S, width): the output of the last layer, normed, for embedded tokens at these positions."""
        done = mark or (lambda part: None)
        c, angles = self.config, self.angles(places.expand(x.shape[:2]))
        for i in range(c.layers):
            before = self._norm(f"layers.{i}.norm1", x)
            self._said(record, "before", before, i)
            done("norm")
            packed = self._linear(f"layers.{i}.qkv", before)
            self._said(record, "qkv", packed, i)
            done("qkv")
            sizes = (c.inner, c.kv_inner, c.kv_inner)
            q, k, v = (t.unflatten(-1, (-1, c.head_dim)) for t in packed.split(sizes, -1))
            if f"layers.{i}.q_norm.weight" in self.weights:
                q, k = self._norm(f"layers.{i}.q_norm", q), self._norm(f"layers.{i}.k_norm", k)
                done("norm")
            context = attend(i, q, k, v, angles)
            self._said(record, "context", context, i)
            done("attention")
            x = self._linear(f"layers.{i}.output", context.flatten(-2), residual=x)
            done("output")
            x = self._ffn(i, x, record, done)
        x = self._norm("norm", x)
        self._said(record, "last", x)
        done("norm")
        return x

    def step(self, x, places, keys, values, at):
        """The same of one embedded token (B, 1, width) of each sequence in one launch, or None where that is
        not to be: the position of each is ``places``, (B, 1), its place in the caches of each layer
        (B, H_kv, S_max, D) ``at``, int64 (B,), and it sees all before it."""
        if not self.one_launch.takes(x, keys[0]):
            return None
        x = self.one_launch(x, self.angles(places), keys, values, at)
        return None if x is None else self._norm("norm", x)

    @cached_property
    def one_launch(self) -> OneLaunch:
        return OneLaunch(self.config, self.weights)

    def logits(self, x, record: Record | None = None, mark: Mark | None = None):
        """(…, vocab) of normed outputs, in their dtype."""
        found = self._linear("head", x)[..., : self.vocab]
        self._said(record, "logits", found)
        if mark:
            mark("head")
        return found

    def _ffn(self, i: int, x, record: Record | None, done: Mark):
        inner = self._norm(f"layers.{i}.norm2", x)
        self._said(record, "after", inner, i)
        done("norm")
        if self.config.activation == "silu":
            inner = self._gated(f"layers.{i}.gate_up", inner)
        else:
            inner = self._linear(f"layers.{i}.ffn1", inner, activation=self.config.activation)
            self._said(record, "inner", inner, i)
        x = self._linear(f"layers.{i}.ffn2", inner, residual=x)
        self._said(record, "out", x, i)
        done("ffn")
        return x

    def _said(self, record: Record | None, step: str, tensor, layer: int | None = None) -> None:
        if record and step in self.modules:
            record(self.modules[step].replace("{i}", str(layer)), tensor)

    def _norm(self, name: str, x):
        """LayerNorm where there is a bias, else RMSNorm; both by kernels that start while the product before
        them ends, and share a row among more threads where rows are few."""
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        if bias is not None:
            return bias_residual_layernorm(x, None, None, weight, bias, self.config.eps)
        return rmsnorm_residual(x, weight, eps=self.config.eps)[0]

    def _gated(self, name: str, x):
        """SwiGLU of the product with the gate's and up's weights."""
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        if isinstance(weight, quantisation.Quantised):
            return swiglu(weight.product(x, bias))
        return linear_swiglu(x, weight, bias, settled=True)

    def _linear(self, name: str, x, **how):
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        if isinstance(weight, quantisation.Quantised):
            return weight.product(x, bias, **how)
        return linear(x, weight, bias, settled=True, **how)


def turned(q, k, angles):
    """Query and key by their rotary positions, where they do not go into a cache of these places at once."""
    return (q, k) if angles is None else (rope.turned(q, angles), rope.turned(k, angles))
