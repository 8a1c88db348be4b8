"""What a model's CUDA graph was captured from, run eagerly in named ranges: from its trace replayed kernels
get operator and module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusescope.profiling.collect.module_hooks import PREFIX, named


def of_model(model, mode: str, inputs: Mapping[str, Any]) -> Callable[[], None] | None:
    """One eager call of what the mode captures; None for a mode that captures nothing, or leaves it to
    torch.compile."""
    from fusescope.models.describe.modes import MODES

    found = MODES[mode]
    if not found.graph or found.compile or not model.device.startswith("cuda"):
        return None
    if found.attention is None:
        return _fused(model, inputs, found.quantised)
    return _hugging_face(model, found, inputs)


def _hugging_face(model, mode, inputs: Mapping[str, Any]) -> Callable[[], None]:
    import torch

    from fusescope.models.run import modes

    call, module = modes.forward(mode, model, inputs), model.view(modes.view(mode))

    def run() -> None:
        with torch.no_grad(), named(module):
            call()

    return run


def _fused(model, inputs: Mapping[str, Any], quantised: str | None) -> Callable[[], None]:
    """Of the encoder both forms of its attention, since which of them was captured is decided by a
    measurement; the linking takes the one that fits."""
    from fusescope.core.errors import Unsupported
    from fusescope.models.run import fused_run
    from fusescope.models.run.fused_encoder import FusedEncoder

    if fused_run.is_decoder(model):
        return _decoder(model, inputs, quantised)
    names: dict[bool, list[str]] = {}
    plan = FusedEncoder(model, inputs["case"]).plan(inputs)

    def run() -> None:
        # made for this call and released: its weights must not show in the memory of the run
        encoder = FusedEncoder(model, inputs["case"])
        total = fused_run.rows(encoder, inputs)

        def call(record, mark) -> None:
            encoder(inputs, record, mark, total=total, plan=plan)

        for by_rows in (True, False):
            encoder.by_rows = by_rows
            try:
                if (
                    by_rows not in names
                ):  # in the profiler's warm-up, so that the trace holds named calls only
                    names[by_rows] = learn(call)
                in_ranges(call, names[by_rows])
            except Unsupported:  # the other one was captured, then
                continue

    return run


def _decoder(model, inputs: Mapping[str, Any], quantised: str | None) -> Callable[[], None]:
    from fusescope.models.run import fused_run

    names: list[str] = []

    def run() -> None:
        call = fused_run.operations(model, inputs, quantised)  # made and released, as the encoder
        names[:] = names or learn(call, "FusedDecoder")
        in_ranges(call, names)

    return run


def learn(call: Callable[[Callable, Callable], Any], root: str = "FusedEncoder") -> list[str]:
    """The dotted name of every part of ``call(record, mark)``, in order: root, layer, part.

    A mark that follows a record belongs to the layer of that record, any other to that of the next one.
    """
    events: list[tuple[str, str]] = []
    call(lambda name, tensor: events.append(("record", name)), lambda part: events.append(("mark", part)))
    found = []
    for n, (kind, name) in enumerate(events):
        if kind == "mark":
            before = events[n - 1][1] if n and events[n - 1][0] == "record" else None
            record = before or next((text for what, text in events[n:] if what == "record"), "")
            words = record.split(".")
            place = next((i for i, w in enumerate(words[:-1]) if w in ("layer", "layers", "h")), None)
            layer = ".".join(words[: place + 2]) if place is not None and name != "embedding" else ""
            found.append(".".join(w for w in (root, layer, name) if w))
    return found


def in_ranges(call: Callable[[Callable, Callable], Any], names: list[str]) -> None:
    """``call(record, mark)`` with each of its parts in a range "module: <name>"; names as ``learn`` gives
    them. A part is reported only after it ran, so the next one's range is opened when the one before ends."""
    from torch.autograd.profiler import record_function

    waiting, open_ranges = iter(names), []

    def turn(part: str | None = None) -> None:
        if open_ranges:
            open_ranges.pop().__exit__(None, None, None)
        if (name := next(waiting, None)) is not None:
            open_ranges.append(record_function(f"{PREFIX}{name}"))
            open_ranges[-1].__enter__()

    turn()
    try:
        call(lambda name, tensor: None, turn)
    finally:
        if open_ranges:
            open_ranges.pop().__exit__(None, None, None)
