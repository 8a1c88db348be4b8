"""What a kernel's leading comment says for the choice among kernels: which inputs it takes, what of a mask it
is given, and how its blocks share the work.

    // takes: fp16 bf16, d<=128, no-bias, scale>0, tma
    // plan: schedule
    // tiles: 1 per block, 4 blocks per SM, up to 2 tiles per SM, from 3 steps
    // tiles: 2 per block, 2 blocks per SM
    // least: 128 rows per SM

takes: dtypes (fp32 fp16 bf16, default all), head sizes above and up to a number, no bias, positive scales
only, operands that TMA can address (default: none of these limits); softcap and sinks; score, an expression
that modifies scores; an fp8 cache; a new token's key and value in the same launch; window, of packed
attention (default: not taken).
plan: lists (tile lists, the default), schedule (tile lists merged for pairs of query tiles) or parts (work
items instead of the plan, each for two neighbouring query tiles; "parts, 3 query tiles": for three).
tiles: query tiles per block and blocks per multiprocessor up to 64 columns of head size; of several lines the
first holds whose limits (query tiles per multiprocessor, steps of two KV tiles in the longest list) are met.
"tiles: none": each row walks its live keys one by one.
least: query rows of all heads per multiprocessor below which the kernel before it is faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
PLANS = ("lists", "schedule", "parts")
GROUPS = (2, 3)
"""Query tiles that a work item may be for (cuda/attention/parts.h)."""

_GROUPS = re.compile(rf"parts, ({'|'.join(map(str, GROUPS))}) query tiles")

_LEAST = re.compile(r"(\d+) rows per SM")
_TILES = re.compile(
    r"(\d+) per block, (\d+) blocks? per SM(?:, up to (\d+) tiles? per SM)?(?:, from (\d+) steps?)?"
)


@dataclass(frozen=True)
class Inputs:
    """What the choice among kernels is given of a call. dtype: "float16" …; tma: whether TMA can address the
    operands; plans: what its mask can be given as; few_rows: whether there are fewer
    query rows than a kernel says it wants."""

    dtype: str
    head_dim: int
    tma: bool = False
    bias: bool = False
    positive_scale: bool = True
    plans: tuple[str, ...] = ("lists",)
    scored: bool = False
    expressed: bool = False
    fp8_cache: bool = False
    new_token: bool = False
    few_rows: bool = False
    window: bool = False


@dataclass(frozen=True)
class Takes:
    """The inputs that a kernel takes; the default is all of them."""

    dtypes: tuple[str, ...] = tuple(DTYPES.values())
    above: int = 0
    head_dim: int | None = None
    bias: bool = True
    any_scale: bool = True
    any_strides: bool = True
    scored: bool = False
    expressed: bool = False
    fp8_cache: bool = False
    new_token: bool = False
    window: bool = False

    def has_head_dim(self, size: int) -> bool:
        return self.above < size and (self.head_dim is None or size <= self.head_dim)

    def accepts(self, inputs: Inputs) -> bool:
        return (
            inputs.dtype in self.dtypes
            and self.has_head_dim(inputs.head_dim)
            and (self.bias or not inputs.bias)
            and (self.any_scale or inputs.positive_scale)
            and (self.any_strides or inputs.tma)
            and (self.scored or not inputs.scored)
            and (self.expressed or not inputs.expressed)
            and (self.fp8_cache or not inputs.fp8_cache)
            and (self.new_token or not inputs.new_token)
            and (self.window or not inputs.window)
        )


@dataclass(frozen=True)
class Tiles:
    """How a kernel's blocks share query tiles. per_block, blocks (per multiprocessor): see the module;
    most_tiles and least_steps: the limits of this line."""

    per_block: int
    blocks: int
    most_tiles: int | None = None
    least_steps: int = 0

    def holds(self, tiles_per_sm: float, steps: int) -> bool:
        return (self.most_tiles is None or tiles_per_sm <= self.most_tiles) and steps >= self.least_steps


EVERYTHING = Takes()
ONE_TILE_PER_BLOCK = (Tiles(1, 1),)


def read(
    takes: Sequence[str], plan: Sequence[str], tiles: Sequence[str], least: Sequence[str] = ()
) -> dict[str, object]:
    """{name: value} of the directives there are, from the texts behind each one's colons. ValueError for a
    word or form that is not known."""
    found: dict[str, object] = {}
    if takes:
        found["takes"] = _takes(", ".join(takes))
    if plan:
        if match := _GROUPS.fullmatch(plan[-1]):
            found["group"] = int(match[1])
        elif plan[-1] not in PLANS:
            known = ", ".join(PLANS)
            raise ValueError(f"plan: one of {known}, or such as parts, 3 query tiles, not {plan[-1]!r}")
        found["plan"] = "parts" if match else plan[-1]
    if tiles:
        found["tiles"] = () if list(tiles) == ["none"] else tuple(map(_tiles, tiles))
    if least:
        match = _LEAST.fullmatch(least[-1])
        if not match:
            raise ValueError(f"least: such as 128 rows per SM, not {least[-1]!r}")
        found["least_rows"] = int(match[1])
    return found


def _takes(text: str) -> Takes:
    found, dtypes = Takes(), []
    for word in text.replace(",", " ").split():
        if word in DTYPES:
            dtypes.append(DTYPES[word])
        elif match := re.fullmatch(r"d<=(\d+)", word):
            found = replace(found, head_dim=int(match[1]))
        elif match := re.fullmatch(r"d>(\d+)", word):
            found = replace(found, above=int(match[1]))
        elif word in _LIMITS:
            found = replace(found, **{_LIMITS[word]: False})
        elif word in _FURTHER:
            found = replace(found, **{_FURTHER[word]: True})
        else:
            known = " ".join((*DTYPES, "d>64", "d<=128", *_LIMITS, *_FURTHER))
            raise ValueError(f"takes: {known} are known, not {word!r}")
    return replace(found, dtypes=tuple(dtypes)) if dtypes else found


_FURTHER = {
    "softcap+sinks": "scored",
    "score": "expressed",
    "fp8-cache": "fp8_cache",
    "new-token": "new_token",
    "window": "window",
}
_LIMITS = {"no-bias": "bias", "scale>0": "any_scale", "tma": "any_strides"}


def _tiles(text: str) -> Tiles:
    match = _TILES.fullmatch(text)
    if not match:
        raise ValueError(
            "tiles: none, or such as 2 per block, 4 blocks per SM, up to 2 tiles per SM, from 3 steps; "
            f"not {text!r}"
        )
    per_block, blocks, most, least = (None if n is None else int(n) for n in match.groups())
    return Tiles(per_block, blocks, most, least or 0)


def tensor_cores(expects: Iterable[str]) -> bool:
    """Whether these SASS mnemonics name a matrix instruction (HMMA, HGMMA, IMMA …)."""
    return any(word.endswith("MMA") for word in expects)
