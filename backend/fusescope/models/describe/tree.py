"""Where a model's parameters are: exact counts from its weight table, as a tree. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusescope.models.describe import catalog
from fusescope.models.describe.family import rows


@dataclass(frozen=True)
class Node:
    """A part of a model. name: its path, "bert-base/encoder/layer 0"; parent: that of the part it belongs to,
    "" for the whole; count: parameters in it; kind: "model", "part" (has parts of its own) or "weights" (a
    leaf)."""

    name: str
    parent: str
    count: int
    kind: str

    @property
    def label(self) -> str:
        return self.name.rpartition("/")[2]


def anatomy(name: str, case: Mapping[str, Any] | None = None, checkpoint: str | None = None) -> list[Node]:
    """The tree, the whole first and each part before its own parts; counts are sums of the weights below."""
    config, module = catalog.config(name, case, checkpoint), catalog.family(name)
    counts: dict[str, int] = {}
    for weight, layer in rows(module, config):
        steps = [getattr(module, "ROOT", name), *weight.node.replace("{i}", str(layer)).split("/")]
        for depth in range(1, len(steps) + 1):
            path = "/".join(steps[:depth])
            counts[path] = counts.get(path, 0) + math.prod(weight.dims(config))
    parents = {path.rpartition("/")[0] for path in counts}
    places = {path: place for place, path in enumerate(counts)}
    ordered = sorted(counts, key=lambda path: _order(path, places))
    return [
        Node(
            path,
            path.rpartition("/")[0],
            counts[path],
            "model" if "/" not in path else "part" if path in parents else "weights",
        )
        for path in ordered
    ]


def _order(path: str, places: Mapping[str, int]) -> tuple[int, ...]:
    """Each part after its parent, in the order of the table."""
    steps = path.split("/")
    return tuple(places["/".join(steps[: depth + 1])] for depth in range(len(steps)))


def total(name: str, case: Mapping[str, Any] | None = None, checkpoint: str | None = None) -> int:
    """Total number of parameters."""
    config = catalog.config(name, case, checkpoint)
    return sum(math.prod(weight.dims(config)) for weight, _ in rows(catalog.family(name), config))
