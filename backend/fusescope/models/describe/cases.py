"""A case of a model: complete, checked in one sentence each, and the lengths of its sequences. No torch."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from fusescope import masks
from fusescope.core.schema import Parameter, check_int, complete
from fusescope.models.describe import catalog
from fusescope.models.describe.family import Config

UNIFORM = (
    Parameter("low", "float", 0.2, "shortest length as a share of seq", above=0, high=1),
    Parameter("seed", "int", 0, "seed of the order of the lengths"),
)
_ROWS = 256
_MOST_LOGITS = 1 << 29
_FORWARD = 64  # rows looked at for keys ahead of the query


def validate(name: str, case: Mapping[str, Any], checkpoint: str | None = None) -> dict[str, Any]:
    """The complete case, layers, heads and head_dim as numbers, mask and lengths in their canonical form.

    Raises ValueError: unknown keys, sizes out of bounds, heads that do not divide the width, more tokens than
    a checkpoint has positions for, lengths that are not one per sequence between 1 and seq, a mask that the
    model cannot take.
    """
    module = catalog.family(name)
    own = {key: value for key, value in case.items() if value is not None and value != ""}
    if own.get("phase") and not module.PHASES:
        why = getattr(module, "found", {}).get("uncached") or f"it is an {module.KIND}"
        raise ValueError(f"{catalog.title(name)} has no phase {own['phase']}, it does not generate: {why}")
    if isinstance(own.get("lengths"), list | tuple):
        own["lengths"] = "+".join(map(str, own["lengths"]))
    found = complete(name, catalog.parameters(name), own, text=True)
    sizes = {key: found[key] for key in ("layers", "heads", "head_dim") if key in own}
    further = {key: found.get(key) for key in ("seq", "phase", "new", "config")}
    config = catalog.config(name, sizes | further, checkpoint)
    found |= {"layers": config.layers, "heads": config.heads, "head_dim": config.head_dim}
    if "config" in found:
        found["config"] = config.more["config"]
    elif config.head_dim % 8:
        raise ValueError(
            f"head_dim is a multiple of 8, not {config.head_dim}; {config.heads} heads on a width of "
            f"{config.hidden} give that"
        )
    if found.get("phase") != "generate":
        found.pop("new", None)
    elif (size := found["batch"] * found["new"] * config.vocab) > _MOST_LOGITS:
        raise ValueError(
            f"logits of batch {found['batch']} and {found['new']} new tokens over {config.vocab} words are "
            f"{size:,} numbers to be checked; at most {_MOST_LOGITS:,} are: choose a smaller batch or new"
        )
    found["lengths"], counts = _lengths(found["lengths"], found["batch"], found["seq"])
    found["mask"] = _mask(name, module, config, found, all(n == found["seq"] for n in counts))
    return found


def own_masks(module) -> bool:
    """Whether a family makes its masks itself, from the lengths: no other can be laid over them."""
    return module.KIND == "encoder-decoder" or getattr(module, "OWN_MASKS", False)


def lengths(case: Mapping[str, Any]) -> list[int]:
    """Tokens of each sequence of a complete case."""
    return _lengths(case["lengths"], case["batch"], case["seq"])[1]


def _lengths(text: str, batch: int, seq: int) -> tuple[str, list[int]]:
    word, _, settings = text.strip().partition(":")
    if word == "fixed" and not settings:
        return "fixed", [seq] * batch
    if word == "uniform":
        return _uniform(settings, batch, seq)
    try:
        counts = [int(piece) for piece in text.split("+")]
    except ValueError:
        raise ValueError(
            "lengths must be fixed, uniform[:low=0.2,seed=0] or one integer per sequence such as 100+37, "
            f"not {text!r}"
        ) from None
    if len(counts) != batch:
        raise ValueError(f"lengths give {len(counts)} sequences, batch is {batch}")
    for count in counts:
        check_int("a length", count, 1, seq)
    return "+".join(map(str, counts)), counts


def _uniform(settings: str, batch: int, seq: int) -> tuple[str, list[int]]:
    """Even steps from low·seq to seq in an order drawn by seed: the mean is (1 + low) / 2 of seq, whatever
    the batch from 2 on."""
    given = dict(piece.partition("=")[::2] for piece in filter(None, settings.split(",")))
    values = complete("lengths uniform", UNIFORM, given, text=True)
    steps = np.linspace(values["low"], 1.0, batch) if batch > 1 else np.ones(1)
    counts = [max(1, round(float(share) * seq)) for share in steps]
    random.Random(values["seed"]).shuffle(counts)
    said = [f"low={values['low']:g}"] * (values["low"] != 0.2) + [f"seed={values['seed']}"] * (
        values["seed"] != 0
    )
    return "uniform" + (":" + ",".join(said) if said else ""), counts


def _mask(name: str, module, config: Config, case: Mapping[str, Any], whole: bool) -> str:
    mask, seq = masks.parse(str(case["mask"])), case["seq"]
    if getattr(module, "OWN_MASKS", False):
        if str(mask) != module.MASK:
            raise ValueError(f"{config.name} brings its own masks; mask is {module.MASK}, not {mask}")
        if case.get("phase") == "decode" and not whole:
            raise ValueError(
                f"{config.name} brings its own masks, over caches of one length: to decode lengths is fixed"
            )
    if module.SETTINGS is None and module.tokens is not None and not whole:
        raise ValueError(f"images of {config.name} are all of one size: lengths is fixed")
    if hasattr(module, "INPUT") and not (whole and mask.name == "full"):
        raise ValueError(f"{name} takes no mask: mask is full and lengths fixed")
    if module.KIND == "encoder-decoder" and mask.name != "full":
        raise ValueError(
            f"{name} brings its own masks: full in the encoder, causal in the decoder; mask {mask} cannot "
            "be laid over them"
        )
    if case.get("phase") == "generate" and not (whole and mask.name == "causal"):
        raise ValueError(f"phase generate of {name} takes whole prompts: lengths is fixed and mask causal")
    if case.get("phase") == "decode" and mask.name != "causal":
        raise ValueError(f"a decoded token of {name} sees the whole cache: mask is causal, not {mask}")
    bound = mask.bind(seq, seq)
    if mask.sequences not in (None, case["batch"]):
        raise ValueError(
            f"mask {mask} gives lengths for {mask.sequences} sequences, batch is {case['batch']}"
        )
    if mask.sequences is not None and not whole:
        raise ValueError(f"mask {mask} differs per sequence: lengths is fixed with it, not {case['lengths']}")
    if not mask.every_row_live and (row := _dead_row(bound, seq)) is not None:
        raise ValueError(
            f"mask {mask} leaves token {row} without any to attend to; a model needs at least one for each"
        )
    if module.KIND == "decoder" and _looks_ahead(bound, seq):
        raise ValueError(
            f"{name} generates from left to right: a mask that keeps later tokens, such as {mask}, is not "
            "one it can take"
        )
    return str(mask)


def _dead_row(bound, seq: int) -> int | None:
    """The first row without a kept key in any of its sequences."""
    for first in range(0, seq, _ROWS):
        dead = ~bound.block(first, min(first + _ROWS, seq)).any(-1)
        if dead.any():
            return first + int(np.argmax(dead.reshape(-1, dead.shape[-1]).any(0)))
    return None


def _looks_ahead(bound, seq: int) -> bool:
    """Whether some row keeps a later key: on rows spread over the sequence, the first among them."""
    for row in np.unique(np.linspace(0, seq - 1, min(seq, _FORWARD)).astype(int)):
        if bool(bound.block(int(row), int(row) + 1)[..., row + 1 :].any()):
            return True
    return False
