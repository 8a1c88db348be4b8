"""For what a layer is fused: its sizes, mask, dtype, device and compiler. Times are compared within one
setting only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any

from fusescope import masks
from fusescope.core.records import DTYPES, Record
from fusescope.core.schema import REQUIRED, Parameter, complete
from fusescope.search.scheme.layer import Sizes

OP = "layer"
"""What records of a whole layer are called; FINAL: the best with all baselines; SEGMENT: one segment on its
own."""
FINAL, SEGMENT = "layer_final", "layer_segment"

COMPILERS = {
    "inductor": "torch.compile for segments that no hand-written kernel matches",
    "none": "such segments stay plain torch: nothing is compiled, for trials on a CPU",
}


def _device(name: str) -> str:
    name = "cuda:0" if name == "cuda" else name
    if not re.fullmatch(r"cpu|cuda:\d+", name):
        raise ValueError(f"a layer's device must be cpu or cuda:N, not {name!r}")
    return name


PARAMETERS = (
    Parameter("batch", "int", REQUIRED, "sequences", 1, 1 << 16, (1, 2, 4, 8, 16, 32)),
    Parameter("seq", "int", REQUIRED, "tokens per sequence", 1, 1 << 17, (32, 64, 128, 256, 512, 1024, 2048)),
    Parameter("heads", "int", 12, "heads", 1, 1 << 12, (1, 2, 4, 8, 12, 16)),
    Parameter("head_dim", "int", 64, "head size", 1, 1 << 12, (32, 64, 128)),
    Parameter("mask", "mask", "full", "which keys a query sees"),
    Parameter("dtype", "choice", "float16", "of activations and weights", choices=DTYPES),
    Parameter(
        "compiler",
        "choice",
        "inductor",
        "; ".join(f"{name}: {what}" for name, what in COMPILERS.items()),
        choices=tuple(COMPILERS),
    ),
    Parameter("ffn", "int", None, "width of the FFN; four times the layer's where left out", 1, 1 << 20),
    Parameter("device", "text", "cpu", "cuda:0 or cpu", further=_device),
)
"""The keys of a Setting, as JSON and on pages."""
_CASE = ("batch", "seq", "heads", "head_dim", "ffn", "mask", "compiler")


@dataclass(frozen=True)
class Setting:
    """One layer on one device. ffn defaults to 4 * heads * head_dim; mask: text as masks.parse reads it,
    "full" = no mask.

    ValueError naming the rule, the value given and what is supported.
    """

    batch: int
    seq: int
    heads: int = 12
    head_dim: int = 64
    ffn: int | None = None
    mask: str = "full"
    dtype: str = "float16"
    device: str = "cpu"
    compiler: str = "inductor"

    def __post_init__(self):
        for name, value in complete("a layer", PARAMETERS, vars(self)).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "ffn", self.ffn or 4 * self.heads * self.head_dim)
        mask = masks.parse(self.mask).resolved(self.seq)
        if mask.sequences not in (None, self.batch):
            raise ValueError(
                f"mask {mask} is written for {mask.sequences} sequences, the batch is {self.batch}"
            )
        mask.bind(self.seq)
        object.__setattr__(self, "mask", str(mask))

    @property
    def cuda(self) -> bool:
        return self.device != "cpu"

    @property
    def masked(self) -> bool:
        """Whether there is a mask at all."""
        return self.mask != "full"

    @cached_property
    def facts(self) -> tuple[float | None, bool]:
        """(density of the mask, None without one; whether some query sees no key)."""
        return _facts(self.mask, self.seq) if self.masked else (None, False)

    def sizes(self) -> Sizes:
        """The sizes with the mask's density, as layer.cost and unfused.inputs take them."""
        return Sizes(self.batch, self.seq, self.heads, self.head_dim, self.ffn, self.facts[0])

    def case(self) -> dict[str, Any]:
        """The case of its records; dtype and device are fields of their own there."""
        return {name: getattr(self, name) for name in _CASE}

    def spec(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        """In words: "batch 8, seq 512, 12 heads of 64, ffn 3,072, full mask, float16 on cuda:0"."""
        mask = f"mask {self.mask}" if self.masked else "full mask"
        plain = "" if self.compiler == "inductor" else ", nothing compiled"
        heads = "1 head" if self.heads == 1 else f"{self.heads} heads"
        sizes = f"batch {self.batch}, seq {self.seq:,}, {heads} of {self.head_dim}, ffn {self.ffn:,}"
        return f"{sizes}, {mask}, {self.dtype} on {self.device}{plain}"


def of_spec(spec: Mapping[str, Any]) -> Setting:
    """The setting in a job's spec, other keys ignored; ValueError where batch or seq is missing."""
    return Setting(
        **{"batch": None, "seq": None} | {p.name: spec[p.name] for p in PARAMETERS if p.name in spec}
    )


def of_record(record: Record) -> Setting:
    """The setting in which a record of a layer was measured; ValueError for a record of something else."""
    if record.op not in (OP, FINAL, SEGMENT):
        raise ValueError(f"a record of a layer has op {OP}, {FINAL} or {SEGMENT}, not {record.op!r}")
    return of_spec({**record.case, "dtype": record.dtype, "device": record.device})


@lru_cache(maxsize=8)
def _facts(mask: str, seq: int) -> tuple[float, bool]:
    keep = masks.parse(mask).dense(seq)
    density = float(keep.mean())
    if density == 0:
        raise ValueError(f"mask {mask} keeps no key at all at sequence length {seq}")
    return density, not bool(keep.any(-1).all())
