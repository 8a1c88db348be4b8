"""Our own encoder for models of BERT's and of ViT's structure: every kernel of the layer fused, padding
removed where lengths allow it.

A BERT layer is seven operators: QKV product with its bias, attention on strided views of that product (no
head split), output product, bias + residual + LayerNorm, product with bias and GELU, product, bias + residual
+ LayerNorm. A ViT layer is seven too: LayerNorm, QKV, attention, output product with bias and residual,
LayerNorm, product with bias and GELU, product with bias and residual. Each is one launch, but where
cuBLASLt's product is the fastest for GELU with erf, with which none of its own ends: that is a second one.
Attention writes its heads side by side, so nothing is copied.

Packed: with lengths and a full or causal mask or a sliding window the padding is dropped after the embedding
and put back as zeros at the end; all layers then work on (total tokens, width) only. ``total`` may be a
bucket above the sum of the lengths, so that one captured graph serves many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fusescope.core.errors import Unsupported
from fusescope.models.run import masking, weights
from fusescope.models.run.build import Model
from fusescope.ops.attention import attention, attention_varlen, prepare
from fusescope.ops.dense.layernorm import layernorm
from fusescope.ops.layer import padding
from fusescope.ops.layer.bias_residual_layernorm import bias_residual_layernorm
from fusescope.ops.layer.embedding_layernorm import embedding_layernorm
from fusescope.ops.layer.linear import linear

PACKABLE = ("full", "causal")
Record = Callable[[str, Any], None]
Mark = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """What one of ``degree`` tensor parallel ranks has of every layer: so many of its heads and FFN columns.
    sum(product): adds, in place, what the other ranks have of a product whose inputs are divided."""

    degree: int = 1
    rank: int = 0
    sum: Callable[[Any], None] = lambda product: None


class FusedEncoder:
    """The encoder of a built model, or one rank's ``part`` of it; ``case`` says the mask. Raises Unsupported
    for families without a STRUCTURE."""

    def __init__(self, model: Model, case: Mapping[str, Any], part: Part = Part()):
        self.config, self.structure = model.config, model.family.STRUCTURE
        if self.structure is None:
            raise Unsupported(
                f"the fused encoder is for models of the structure of BERT or ViT; {model.name} is a "
                f"{model.family.KIND}"
            )
        self.modules = model.family.MODULES
        self.case, self.device = dict(case), model.device
        self.weights = weights.ours(model.family, model.config, model.module)
        self.heads, self._sum = self.config.heads // part.degree, part.sum
        if part.degree > 1:
            self._divide(part)
        # attention over full and causal masks by the packed kernel, which gives its heads side by side
        self.by_rows = True
        self._whole: dict[int, Any] = {}

    def packs(self, inputs: Mapping[str, Any]) -> bool:
        """Whether padding is removed for these inputs."""
        packable = inputs["mask"].name in (*PACKABLE, "sliding_window")
        return packable and any(n != self.case["seq"] for n in inputs["lengths"])

    def plan(self, inputs: Mapping[str, Any]):
        """The plan of a mask for which the packed kernel is not called; None for the others."""
        packed = inputs["mask"].name in PACKABLE or self.packs(inputs)
        return None if packed else masking.plan_of(inputs, self.device)

    def __call__(
        self,
        inputs: Mapping[str, Any],
        record: Record | None = None,
        mark: Mark | None = None,
        total: int | None = None,
        plan=None,
    ):
        """Hidden states (B, S, width) of the last layer; zeros in the padding where it was removed.

        record(name, tensor) gets every output, in order, by the name of the Hugging Face module that has the
        same; mark(part) is called after each operation with its layer part. total: rows to pack into (the sum
        of the lengths where None); plan: of ``plan``, made here where None.
        """
        given, mark = record or (lambda name, tensor: None), mark or (lambda part: None)

        def record(step: str, tensor, layer: int | None = None) -> None:
            if step in self.modules:
                given(self.modules[step].replace("{i}", str(layer)), tensor)

        with torch.no_grad():
            plan = plan or self.plan(inputs)
            x = self._embed(inputs)
            record("embedded", x)
            mark("embedding")
            batch, seq = self.case["batch"], self.case["seq"]
            offsets = None
            if packed := self.packs(inputs):
                total = total or sum(inputs["lengths"])
                x, offsets, _ = padding.pack(x, inputs["lengths_tensor"], total=total)
                mark("embedding")
            attend = self.attention(inputs, plan, offsets)
            layer = self._norm_after if self.structure == "norm after" else self._norm_before
            for i in range(self.config.layers):
                x = layer(i, x, attend, record, mark)
            if self.structure == "norm before":
                x = self._layernorm(x, "norm")
                record("last", x)
                mark("norm")
            if packed:
                x = padding.unpack(x, offsets, batch, seq)
                mark("embedding")
            return x

    def attention(self, inputs: Mapping[str, Any], plan=None, offsets=None):
        """attend(qkv) -> context (…, heads · head_dim) of the product (…, 3 · heads · head_dim). offsets:
        cu_seqlens of packed tokens, None where they are not packed."""
        heads, dim, mask = self.heads, self.config.head_dim, inputs["mask"].name
        batch, seq = self.case["batch"], self.case["seq"]
        if offsets is not None or (self.by_rows and mask in PACKABLE):
            offsets = self._offsets(batch, seq) if offsets is None else offsets
            sides = inputs["mask"].resolved(seq).values if mask == "sliding_window" else None
            window = sides and (sides["left"], sides["right"])

            def by_rows(qkv):
                q, k, v = qkv.reshape(-1, 3, heads, dim).unbind(1)
                out = attention_varlen(q, k, v, offsets, offsets, causal=mask == "causal", window=window)
                return out.reshape(*qkv.shape[:-1], heads * dim)

            return by_rows
        if mask == "causal" and plan is None:
            plan = prepare(inputs["mask"], seq, seq, self.device)

        def by_heads(qkv):
            q, k, v = qkv.view(*qkv.shape[:2], 3, heads, dim).permute(2, 0, 3, 1, 4)
            out = attention(q, k, v, plan, out_bshd=True)
            return out.transpose(1, 2).reshape(*qkv.shape[:2], heads * dim)  # a view

        return by_heads

    def _norm_after(self, i: int, x, attend, record: Record, mark: Mark):
        w, at, eps = self.weights, f"layers.{i}", self.config.eps
        qkv = linear(x, w[f"{at}.qkv.weight"], w[f"{at}.qkv.bias"], settled=True)
        mark("qkv")
        context = attend(qkv)
        record("context", context, i)
        mark("attention")
        product = linear(context, w[f"{at}.output.weight"], settled=True)
        self._sum(product)
        mark("output")
        x = bias_residual_layernorm(
            product, w[f"{at}.output.bias"], x, w[f"{at}.norm1.weight"], w[f"{at}.norm1.bias"], eps
        )
        record("attended", x, i)
        mark("norm")
        inner = linear(
            x, w[f"{at}.ffn1.weight"], w[f"{at}.ffn1.bias"], activation=self.config.activation, settled=True
        )
        record("inner", inner, i)
        product = linear(inner, w[f"{at}.ffn2.weight"], settled=True)
        self._sum(product)
        mark("ffn")
        x = bias_residual_layernorm(
            product, w[f"{at}.ffn2.bias"], x, w[f"{at}.norm2.weight"], w[f"{at}.norm2.bias"], eps
        )
        record("out", x, i)
        mark("norm")
        return x

    def _norm_before(self, i: int, x, attend, record: Record, mark: Mark):
        w, at = self.weights, f"layers.{i}"
        before = self._layernorm(x, f"{at}.norm1")
        record("before", before, i)
        mark("norm")
        qkv = linear(before, w[f"{at}.qkv.weight"], w[f"{at}.qkv.bias"], settled=True)
        mark("qkv")
        context = attend(qkv)
        mark("attention")
        x = linear(context, w[f"{at}.output.weight"], w[f"{at}.output.bias"], residual=x, settled=True)
        mark("output")
        after = self._layernorm(x, f"{at}.norm2")
        record("after", after, i)
        mark("norm")
        inner = linear(
            after,
            w[f"{at}.ffn1.weight"],
            w[f"{at}.ffn1.bias"],
            activation=self.config.activation,
            settled=True,
        )
        record("inner", inner, i)
        x = linear(inner, w[f"{at}.ffn2.weight"], w[f"{at}.ffn2.bias"], residual=x, settled=True)
        record("out", x, i)
        mark("ffn")
        return x

    def _divide(self, part: Part) -> None:
        """Keep of the layers' weights what the rank has: a bias that is added after a sum stays whole."""
        if self.structure != "norm after":
            raise Unsupported("tensor parallel ranks share the fused encoder of BERT's structure alone")

        def of_rank(tensor, dim: int = 0):
            return tensor.chunk(part.degree, dim)[part.rank].contiguous()

        for i in range(self.config.layers):
            for name in (f"layers.{i}.qkv.weight", f"layers.{i}.qkv.bias"):
                self.weights[name] = torch.cat([of_rank(rows) for rows in self.weights[name].chunk(3)])
            for name in (f"layers.{i}.ffn1.weight", f"layers.{i}.ffn1.bias"):
                self.weights[name] = of_rank(self.weights[name]).clone()
            for name in (f"layers.{i}.output.weight", f"layers.{i}.ffn2.weight"):
                self.weights[name] = of_rank(self.weights[name], 1)

    def _layernorm(self, x, name: str):
        return layernorm(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], self.config.eps)

    def _embed(self, inputs):
        w, eps = self.weights, self.config.eps
        if self.config.patch:
            return self._patches(inputs["pixel_values"])
        tables = (w["word"], w["position"], w.get("type"), w["norm.weight"], w["norm.bias"])
        return embedding_layernorm(inputs["input_ids"], None, None, *tables, eps)

    def _patches(self, pixels):
        """(B, C, side, side) -> (B, patches + 1, width): each patch one row of a product, the class token
        first, positions added."""
        w, edge, width = self.weights, self.config.patch, self.config.hidden
        batch, channels, side, _ = pixels.shape
        count = side // edge
        rows = (
            pixels.view(batch, channels, count, edge, count, edge)
            .permute(0, 2, 4, 1, 3, 5)
            .reshape(batch, count * count, -1)
        )
        tokens = linear(rows, w["patch.weight"].reshape(width, -1), w["patch.bias"])
        x = torch.empty(batch, count * count + 1, width, dtype=pixels.dtype, device=pixels.device)
        x[:, 0] = w["cls"][0, 0] + w["position"][0, 0]
        torch.add(tokens, w["position"][:, 1:], out=x[:, 1:])
        return x

    def _offsets(self, batch: int, seq: int):
        """cu_seqlens of whole sequences; made once, because a captured graph must not make it."""
        if batch not in self._whole:
            self._whole[batch] = torch.arange(
                0, (batch + 1) * seq, seq, dtype=torch.int32, device=self.device
            )
        return self._whole[batch]
