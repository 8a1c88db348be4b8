"""The layers of a decoder over weights that are packed once: query, key and value together, gate and up
together; products with bias, activation and residual in one operator, attention of ours."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from fusescope.models.describe.family import Config
from fusescope.models.run import weights
from fusescope.ops.dense.layernorm import layernorm
from fusescope.ops.layer.linear import linear

Attend = Callable[[int, Any, Any, Any], Any]
"""(layer, query (B, S, H, D), key and value (B, S, H_kv, D)) → (B, S, H, D)"""


class Layers:
    """A family's layers with the weights of a loaded Hugging Face module, which stay as they are; what is put
    together is a copy, so later changes of the module's weights are not seen."""

    def __init__(self, family: ModuleType, config: Config, module: Any):
        self.config = config
        self.weights = weights.ours(family, config, module)
        self.rotary = next((m for n, m in module.named_modules() if n.endswith("rotary_emb")), None)
        if config.tied:
            self.weights["head.weight"] = self.weights["word"]

    def embed(self, ids, places):
        """(B, S, width) of token ids and their positions, int64 (B, S)."""
        x = torch.nn.functional.embedding(ids, self.weights["word"])
        if "position" in self.weights:
            x = x + torch.nn.functional.embedding(places, self.weights["position"])
        return x

    def angles(self, places, dtype):
        """cos and sin (B, S, 1, D) of rotary positions; None where a position is embedded."""
        if self.rotary is None:
            return None
        turns = places[..., None].float() * self.rotary.inv_freq.to(places.device).float()
        turns = torch.cat((turns, turns), -1)[:, :, None]
        scale = self.rotary.attention_scaling
        return (turns.cos() * scale).to(dtype), (turns.sin() * scale).to(dtype)

    def __call__(self, x, places, attend: Attend):
        """(B, S, width): the output of the last layer, normed, for embedded tokens at these positions."""
        c, angles = self.config, self.angles(places, x.dtype)
        for i in range(c.layers):
            packed = self._linear(f"layers.{i}.qkv", self._norm(f"layers.{i}.norm1", x))
            sizes = (c.inner, c.kv_inner, c.kv_inner)
            q, k, v = (t.unflatten(-1, (-1, c.head_dim)) for t in packed.split(sizes, -1))
            if f"layers.{i}.q_norm.weight" in self.weights:
                q, k = self._norm(f"layers.{i}.q_norm", q), self._norm(f"layers.{i}.k_norm", k)
            if angles is not None:
                q, k = _turned(q, *angles), _turned(k, *angles)
            x = self._linear(f"layers.{i}.output", attend(i, q, k, v).flatten(-2), residual=x)
            x = self._ffn(i, x)
        return self._norm("norm", x)

    def logits(self, x):
        """(…, vocab) in float32 of normed outputs."""
        return self._linear("head", x).float()

    def _ffn(self, i: int, x):
        inner = self._norm(f"layers.{i}.norm2", x)
        if self.config.activation == "silu":
            gate, up = self._linear(f"layers.{i}.gate_up", inner).chunk(2, -1)
            inner = torch.nn.functional.silu(gate) * up
        else:
            inner = self._linear(f"layers.{i}.ffn1", inner, activation=self.config.activation)
        return self._linear(f"layers.{i}.ffn2", inner, residual=x)

    def _norm(self, name: str, x):
        """LayerNorm where there is a bias, else RMSNorm, summed in float32."""
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        if bias is not None:
            return layernorm(x, weight, bias, self.config.eps)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.eps)
        return weight * wide.to(x.dtype)

    def _linear(self, name: str, x, **how):
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        return linear(x, weight, bias, settled=True, **how)


def _turned(x, cos, sin):
    """Rotary positions on (B, S, H, D): the halves of a head turn against each other."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin
