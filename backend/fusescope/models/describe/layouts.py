"""How a model is laid out over several devices: tensor, pipeline and data parallel degrees. No torch.

A layout is written tp2, pp4, tp2.pp2.dp2; an implementation of a parallel comparison is an attention, alone
for one device ("sdpa") or with a layout ("sdpa-tp2"). The attention "fused" is all of our encoder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fusescope import masks
from fusescope.analysis.scaling.predict import Work
from fusescope.models.describe import catalog, tree
from fusescope.models.describe.costs import BYTES
from fusescope.models.describe.family import Split

FUSED = "fused"
ATTENTIONS = ("sdpa", "fusescope", FUSED)
MOST_RANKS = 1024
_PART = re.compile(r"(tp|pp|dp)([1-9]\d{0,3})", re.ASCII)


@dataclass(frozen=True)
class Layout:
    """Degrees: tp ranks share each layer, pp stages share the layers, dp replicas share the batch."""

    tp: int = 1
    pp: int = 1
    dp: int = 1

    @property
    def ranks(self) -> int:
        return self.tp * self.pp * self.dp

    def __str__(self) -> str:
        """ "tp2.pp2"; "single" for one device."""
        parts = [f"{word}{n}" for word, n in (("tp", self.tp), ("pp", self.pp), ("dp", self.dp)) if n > 1]
        return ".".join(parts) or "single"


SINGLE = Layout()


def parse(text: str) -> Layout:
    """The layout written as text; ValueError for another form or for more than MOST_RANKS ranks."""
    if text == "single":
        return SINGLE
    found: dict[str, int] = {}
    for piece in text.split("."):
        match = _PART.fullmatch(piece)
        if match is None or match[1] in found:
            raise ValueError(
                "a layout is single or degrees such as tp2, pp4 or tp2.pp2.dp2, each at most once; not "
                f"{text!r}"
            )
        found[match[1]] = int(match[2])
    layout = Layout(**found)
    if layout.ranks > MOST_RANKS:
        raise ValueError(f"a layout has at most {MOST_RANKS} ranks; {text} has {layout.ranks}")
    return layout


def implementation(attention: str, layout: Layout) -> str:
    """The name of an implementation: "sdpa", "sdpa-tp2"."""
    return attention if layout.ranks == 1 else f"{attention}-{layout}"


def named(impl: str) -> tuple[str, Layout]:
    """(attention, layout) of an implementation; ValueError naming what there is."""
    attention, dash, layout = impl.partition("-")
    if attention not in ATTENTIONS or (dash and not layout):
        raise ValueError(
            f"an implementation is {', '.join(ATTENTIONS[:-1])} or {ATTENTIONS[-1]}, alone or with a layout "
            f"(sdpa-tp2), not {impl!r}"
        )
    return attention, parse(layout) if dash else SINGLE


def crossed(attentions: Iterable[str], wanted: Iterable[Layout]) -> list[str]:
    """Implementations of every attention, alone and with each layout. One with pipeline stages, which the
    fused encoder does not have, is left to the other attentions where there are some."""
    chosen, wanted = list(dict.fromkeys(attentions)), list(wanted)
    return list(
        dict.fromkeys(
            implementation(attention, layout)
            for attention in chosen
            for layout in (SINGLE, *wanted)
            if attention != FUSED or layout.pp == 1 or len(chosen) == 1
        )
    )


def split_of(name: str) -> Split:
    """How the model's family is divided; ValueError for a family that says nothing about it."""
    split = getattr(catalog.family(name), "PARALLEL", None)
    if split is None:
        can = [n for n in catalog.names() if hasattr(catalog.family(n), "PARALLEL")]
        raise ValueError(f"{name} has no way to be divided over devices; {', '.join(can)} have")
    return split


def check(
    name: str, case: Mapping[str, Any], layout: Layout, micro_batches: int = 1, attention: str = "sdpa"
) -> None:
    """ValueError in one sentence where the model on this complete case cannot be laid out so."""
    split_of(name)
    if attention == FUSED:
        if (structure := catalog.family(name).STRUCTURE) != "norm after":
            raise ValueError(
                f"{FUSED} over devices is the fused encoder of BERT's structure; {name} has "
                f"{'none' if structure is None else f'another ({structure})'}: use sdpa or fusescope"
            )
        if layout.pp > 1:
            raise ValueError(f"the fused encoder has no pipeline stages: {layout} needs sdpa or fusescope")
    config, batch = catalog.config(name, case), case["batch"]
    if case.get("phase") in ("decode", "generate"):
        raise ValueError(
            "a model over several devices is measured on a whole prompt: phase is prefill, not "
            f"{case['phase']}"
        )
    if case["lengths"] != "fixed":
        raise ValueError(
            f"sequences over several devices have one length: lengths is fixed, not {case['lengths']}"
        )
    if masks.parse(case["mask"]).sequences is not None:
        raise ValueError(f"sequences over several devices have one mask: {case['mask']} differs per sequence")
    kv = config.kv_heads or config.heads
    for count, what in ((config.heads, "heads"), (kv, "KV heads"), (config.ffn, "FFN columns")):
        if count % layout.tp:
            raise ValueError(
                f"{name} has {count} {what}, which the tensor parallel degree {layout.tp} does not divide"
            )
    if config.layers % layout.pp:
        raise ValueError(
            f"{name} has {config.layers} layers, which {layout.pp} pipeline stages do not divide"
        )
    if batch % layout.dp:
        raise ValueError(f"batch {batch} is not divided by the data parallel degree {layout.dp}")
    if layout.pp > 1 and (batch // layout.dp) % micro_batches:
        raise ValueError(
            f"{micro_batches} micro-batches do not divide the {batch // layout.dp} sequences of a replica"
        )


def fitting(
    name: str, case: Mapping[str, Any], ranks: int, micro_batches: int = 1, attention: str = "sdpa"
) -> Iterator[Layout]:
    """Every layout of so many ranks that the model on this case can take."""
    for tp in _divisors(ranks):
        for pp in _divisors(ranks // tp):
            layout = Layout(tp, pp, ranks // tp // pp)
            try:
                check(name, case, layout, micro_batches, attention)
            except ValueError:
                continue
            yield layout


def weights(name: str, case: Mapping[str, Any]) -> dict[str, int]:
    """Parameters that a rank may hold: {"split": of all layers, divided by tp, "whole": of all layers, on
    every rank of a stage, "first": before the layers, "last": after them}. The head is not computed and not
    counted."""
    family, config, split = catalog.family(name), catalog.config(name, case), split_of(name)
    found = dict.fromkeys(("split", "whole", "first", "last"), 0)
    for weight, _ in tree.rows(family, config):
        count = 1
        for size in weight.dims(config):
            count *= size
        if weight.node.startswith(("head", "pooler")):
            continue
        if "{i}" not in weight.theirs:
            found["first" if weight.node.startswith("embeddings") else "last"] += count
        else:
            module, _, kind = weight.theirs.partition("{i}.")[2].rpartition(".")
            halved = module in (*split.columns, *split.packed) or (module in split.rows and kind == "weight")
            found["split" if halved else "whole"] += count
    return found


def work(name: str, case: Mapping[str, Any], dtype: str) -> Work:
    """What a prediction knows of the model on a complete case. ValueError for a dtype that models lack."""
    if dtype not in BYTES:
        raise ValueError(f"dtype is one of {', '.join(BYTES)}, not {dtype!r}")
    config = catalog.config(name, case)
    gated = 2 if config.activation == "silu" else 1
    wide = max(config.qkv_inner + config.inner, (gated + 1) * config.ffn)
    sizes = (config.layers, config.hidden, case["seq"], case["batch"], BYTES[dtype])
    return Work(*sizes, **weights(name, case), wide=wide)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]
