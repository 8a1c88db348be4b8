"""What a family of models is made of, without torch: sizes, the weight table, the parameters of a case."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from fusescope.core.schema import Parameter

PARTS = ("embedding", "qkv", "attention", "output", "ffn", "norm", "head")
"""Layer parts, in the order of a forward: of cost notes, of profiled times and of weights. "head" is what
follows the last layer."""

DEFINES = ("NAMES", "TITLE", "KIND", "PHASES", "WEIGHTS", "SETTINGS", "STRUCTURE", "PREFIXES", "IGNORED")
"""What a file of families/ must define. Tables all of them, so a model of a known structure needs no code:

NAMES       {name: Config}: the models of the family with their published sizes
TITLE       {name: for people}
KIND        "encoder", "decoder" or "encoder-decoder"
PHASES      () or ("prefill", "decode"): what of a generating model is measured
WEIGHTS     tuple[Weight, ...]: every parameter of the model under Hugging Face's name, and where it goes in
            ours
SETTINGS    _settings.Settings: the sizes under the names of Hugging Face's configuration
PREFIXES    prefixes under which checkpoints of the family hold the weights' names, "" among them
STRUCTURE   "norm after" (BERT: LayerNorm of each residual sum) or "norm before" (ViT: LayerNorm before
            attention and FFN): which layer of fused_encoder.py it is; "decoder": that of run/decoder/; None:
            none of ours. With one MODULES says as what its outputs are known: Hugging Face's module names by
            our step
IGNORED     patterns (fnmatch) of names that checkpoints of the family hold besides them: heads, old buffers

Besides, where they differ: MASK and SEQ (defaults of a case), INPUT ("input_features": frames instead of
tokens, two each, channels of them, without padding), FREE_HEADS (True: heads and head size need not
make up the width), PARALLEL (a Split: how the family is divided over several devices), OWN_MASKS (True: the
model makes its masks itself, and no other can be laid over them), and for what no table can say
further(config) -> keywords of Hugging Face's configuration, and more(data) -> Config.more of a checkpoint's
config.json, ValueError where that is not of the family.
"""


@dataclass(frozen=True)
class Config:
    """Sizes of a model. hidden: width; ffn: inner width; positions: how many the position table holds (0 =
    none); types: token types; activation: "gelu" (erf), "gelu_tanh", "silu" or "relu"; patch, channels: of an
    image model; tied: the output head is the word table. ``more``: settings of one family alone."""

    name: str
    hidden: int
    layers: int
    heads: int
    head_dim: int
    ffn: int
    vocab: int = 0
    kv_heads: int = 0
    positions: int = 0
    types: int = 0
    eps: float = 1e-12
    activation: str = "gelu"
    patch: int = 0
    channels: int = 0
    tied: bool = True
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def inner(self) -> int:
        """Width of the heads together."""
        return self.heads * self.head_dim

    @property
    def kv_inner(self) -> int:
        return (self.kv_heads or self.heads) * self.head_dim

    @property
    def qkv_inner(self) -> int:
        """Rows of query, key and value together."""
        return self.inner + 2 * self.kv_inner

    @property
    def cache(self) -> tuple[tuple[int, int, int], ...]:
        """Of each layer's KV cache (KV heads, key size, value size)."""
        usual = (self.kv_heads or self.heads, self.head_dim, self.head_dim)
        return tuple(self.more.get("cache", (usual,) * self.layers)[: self.layers])

    @property
    def buckets(self) -> int:
        """Relative positions that T5 tells apart."""
        return self.more["buckets"]

    @property
    def pixels(self) -> int:
        """Numbers in a patch."""
        return self.channels * self.patch**2

    @property
    def image(self) -> int:
        """Pixels of an image's edge; the class token has a position, too."""
        return math.isqrt(self.positions - 1) * self.patch


@dataclass(frozen=True)
class Split:
    """How the modules of a family are divided over devices, by names of Hugging Face's base model.

    layers: the list of layers; inputs: modules that embed the tokens and are passed by in a later stage;
    positions: modules that add positions to given embeddings, nothing in a later stage; norm: what follows
    the last layer. In a layer: columns: linear layers whose outputs are divided (tensor parallel); packed:
    those whose outputs are query, key and value, each divided; rows: those whose inputs are divided and whose
    outputs are summed over the ranks."""

    layers: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    packed: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    positions: tuple[str, ...] = ()
    norm: str | None = None


@dataclass(frozen=True)
class Weight:
    """One parameter. theirs: Hugging Face's name, ``{i}`` standing for the layer; shape: sizes by name (of
    ``Config``), whole numbers as they are; node: its place in the anatomy, steps separated by "/"; ours: the
    name under which our own encoder takes it (rows of one name are put together along the first dimension, in
    order), None where it has no use for it. also: other names that checkpoints have for it. transposed: held
    as (in, out). optional: a checkpoint may lack it. untied: it exists only where the output head is not the
    word table."""

    theirs: str
    shape: tuple[str | int, ...]
    node: str
    ours: str | None = None
    also: tuple[str, ...] = ()
    transposed: bool = False
    optional: bool = False
    untied: bool = False

    def dims(self, config: Config) -> tuple[int, ...]:
        """The shape as numbers, as Hugging Face holds it."""
        return tuple(d if isinstance(d, int) else getattr(config, d) for d in self.shape)

    def layers(self, config: Config) -> range | tuple[None]:
        """The layers it exists in: (None,) where it exists once."""
        return range(config.layers) if "{i}" in self.theirs else (None,)

    def name(self, layer: int | None) -> str:
        """Hugging Face's name in this layer."""
        return self.theirs.replace("{i}", str(layer))


def rows(module: ModuleType, config: Config) -> Iterator[tuple[Weight, int | None]]:
    """Every weight that a model of these sizes has, with its layer (None where it exists once)."""
    for weight in module.WEIGHTS:
        if not (weight.untied and config.tied):
            yield from ((weight, i) for i in weight.layers(config))


def needed(case: Mapping[str, Any]) -> int:
    """Tokens of a case that have a position: the last new one is not fed."""
    behind = {"decode": 1, "generate": (case.get("new") or 1) - 1}.get(case.get("phase"), 0)
    return (case.get("seq") or 1) + behind


EIGHT_BIT = ("int8", "fp8")
"""What the weights of a decoder's layers may be quantised to."""
FP8_CACHE = "fp8-cache"
"""Another kind of quantisation: of the KV cache to e4m3, with a scale per layer and KV head."""


def quantises(ours: str) -> bool:
    """Whether weight-only quantisation takes the weight that we have under this name: the matrices of the
    layers, not the embedding and the head."""
    name = ours.rpartition(".")[0].rpartition(".")[2]
    return ours.endswith(".weight") and name in ("qkv", "output", "gate_up", "ffn1", "ffn2")


def dense(
    theirs: str, rows: str, cols: str, node: str, ours: str | None = None, also: tuple[str, ...] = (), **how
) -> list[Weight]:
    """Weight (rows, cols) and bias (rows,) of one linear layer."""
    return [
        Weight(
            f"{theirs}.weight",
            (rows, cols),
            node,
            ours and f"{ours}.weight",
            tuple(f"{a}.weight" for a in also),
            **how,
        ),
        Weight(
            f"{theirs}.bias", (rows,), node, ours and f"{ours}.bias", tuple(f"{a}.bias" for a in also), **how
        ),
    ]


def norm(theirs: str, node: str, ours: str | None = None, also: tuple[str, ...] = (), **how) -> list[Weight]:
    """Weight and bias of one LayerNorm; old checkpoints call them gamma and beta."""
    names = (theirs, *also)
    return [
        Weight(
            f"{theirs}.weight",
            ("hidden",),
            node,
            ours and f"{ours}.weight",
            tuple(f"{n}.{w}" for n in names for w in ("weight", "gamma"))[1:],
            **how,
        ),
        Weight(
            f"{theirs}.bias",
            ("hidden",),
            node,
            ours and f"{ours}.bias",
            tuple(f"{n}.{w}" for n in names for w in ("bias", "beta"))[1:],
            **how,
        ),
    ]


_SIZES = (1, 2, 4, 8, 16, 32)
COMMON = (
    Parameter("batch", "int", 1, "sequences (images)", low=1, high=1 << 16, typical=_SIZES, sweep=True),
    Parameter(
        "seq",
        "int",
        128,
        "tokens per sequence, at most",
        low=1,
        high=1 << 17,
        typical=tuple(1 << k for k in range(5, 13)),
        sweep=True,
    ),
    Parameter(
        "lengths",
        "text",
        "fixed",
        "lengths of the sequences: fixed (equal, all seq), uniform[:low=0.2,seed=0] (unequal, evenly spread "
        "from low·seq to seq, mean 0.6 of it), or listed: 100+37+…",
    ),
    *(
        Parameter(
            name,
            "int",
            None,
            f"{help}; the model's where left out",
            low=low,
            high=256,
            typical=typical,
            sweep=True,
        )
        for name, help, low, typical in (
            ("layers", "layers", 1, (1, 2, 4, 6, 12, 24)),
            ("heads", "attention heads", 1, (2, 4, 8, 12, 16, 32)),
            ("head_dim", "head size, a multiple of 8", 8, (32, 64, 96, 128)),
        )
    ),
    Parameter("mask", "mask", "full", "which tokens a token sees: name[:key=value,…]"),
)
PHASE = Parameter(
    "phase",
    "choice",
    "prefill",
    "prefill: the whole prompt into an empty cache; decode: one more token of each sequence over a cache "
    "of seq tokens (of lengths); generate: a prompt of seq tokens and new ones after it, one by one",
    choices=("prefill", "decode", "generate"),
)
NEW = Parameter(
    "new", "int", 64, "new tokens of phase generate", low=2, high=1 << 14, typical=(16, 64, 256), sweep=True
)
