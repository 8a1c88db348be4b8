"""What computes a linear layer: all of cuBLASLt's algorithms that its heuristics name are timed once, and our
own products against the fastest of them; but few rows on settled weights are for one of ours.

Algorithms are kept for the process in the extension (cuda/linear/binding.cpp), both choices on disk, one file
a device and version of the library: a problem is measured once on a machine. Deleting the files under the
build cache's algorithms/ costs only time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from fusescope import kernels
from fusescope.core.errors import Unsupported
from fusescope.core.machine.archs import arch_of
from fusescope.core.sources import families
from fusescope.kernels import plan, report
from fusescope.ops.common.algorithm_store import file_of, read, write

IMPL = "v2_measured"
MOST = 16
"""Algorithms that are tried: cuBLASLt's heuristics rank them, and what wins is nearly always among the first
few."""
SMALL = 1 << 18
"""Products of fewer multiplications than this are not worth measuring: their launch costs more."""
_ROUNDS = 5
_GAIN = 0.99
"""The heuristics' first guess is replaced by what takes less than this share of its time."""

FEW_ROWS = "v6_whole_lines"
_MOST_ROWS = 8
"""Up to so many rows, as in decoding, FEW_ROWS is taken without measuring where it takes a product whose
weight is settled: a product alone does not tell what starting early saves between its neighbours. Whole
decoding steps on an H200, all products by it and by what was measured: GPT-2 244.7 us and 256.6, Llama 8B's
first four layers 747.9 and 814 (4 sequences: 752.4 and 755.7; 16: 1007 and 951.8)."""

_known: dict[tuple, dict | None] = {}
_chosen: dict[tuple, str] = {}
_lock = threading.Lock()


def ensure(x, weight, bias, residual, activation: int) -> None:
    """Have the extension know the fastest algorithm for this problem; does nothing under stream capture or
    torch.compile."""
    if torch.compiler.is_compiling():
        return
    key = _key(x, weight, bias, residual, activation)
    if key in _known or torch.cuda.is_current_stream_capturing():
        return
    with _lock:
        if key not in _known:
            _known[key] = _settle((x, weight, bias, residual, activation), key)


def choose(x, weight, bias, residual, activation: int, settled: bool = False) -> str:
    """The implementation that is fastest for this problem: v2_measured, or a product of ours that takes it.
    Measured where nothing is known yet, but for stream capture and torch.compile, where v2_measured is
    taken, and for few rows."""
    operands = (x, weight, bias, residual, activation)
    if torch.compiler.is_compiling():
        return IMPL
    if settled and for_few_rows(x, weight, bias, residual):
        return FEW_ROWS
    key = *_key(*operands), settled
    if (found := _chosen.get(key)) is not None:
        return found
    ensure(*operands)
    if torch.cuda.is_current_stream_capturing():
        return IMPL
    with _lock:
        if key not in _chosen:
            _chosen[key] = _fastest(operands, key[:-1], settled)
    return _chosen[key]


def for_few_rows(x, weight, bias=None, residual=None) -> bool:
    """Whether FEW_ROWS runs on the device and takes the product, and its rows are few."""
    if x.element_size() != 2 or not 0 < x.numel() <= _MOST_ROWS * x.shape[-1]:
        return False
    added = bias is None or bias.data_ptr() % 4 == 0
    added &= residual is None or (_rows_of(residual, 2) and residual.data_ptr() % 4 == 0)
    read = all(_rows_of(t, 8) and t.data_ptr() % 16 == 0 and t.shape[-1] % 8 == 0 for t in (x, weight))
    return added and read and weight.shape[0] % 8 == 0 and FEW_ROWS in own_products(x.device.index)


def _rows_of(t, width: int) -> bool:
    """Whether the elements of a row lie side by side and rows begin at multiples of ``width`` elements."""
    *steps, column = t.stride()
    return column == 1 and not any(step % width for step in steps)


def known() -> list[dict]:
    """What this process has timed, one dict a problem: problem, algorithms (how many were timed), first_ms
    (the heuristics' first guess), best_ms, place (the winner's among the guesses), measured ("now" or
    "before", that is, read from disk)."""
    return [entry for entry in list(_known.values()) if entry]


def _key(x, weight, bias, residual, activation: int) -> tuple:
    addresses = (
        x.data_ptr()
        | weight.data_ptr()
        | (0 if bias is None else bias.data_ptr())
        | (0 if residual is None else residual.data_ptr())
    )
    return (
        x.shape,
        x.stride(),
        weight.shape,
        weight.stride(),
        bias is None,
        None if residual is None else residual.stride(),
        activation,
        x.dtype,
        x.device.index,
        addresses % 16,
    )


def _settle(operands: tuple, key: tuple) -> dict | None:
    """Read the algorithm from disk, or measure; None where there is nothing to choose."""
    x, weight = operands[:2]
    if x.numel() * weight.shape[0] < SMALL:
        return None
    with torch.cuda.device(x.device):
        name, file = _name(key), file_of(x.device.index)
        stored = read(file).get(name)
        if stored and _usable(operands, stored):
            return {"problem": name, **stored, "measured": "before"}
        found = _measure(operands)
        if found is None:
            return None
        write(file, name, found)
        return {"problem": name, **found, "measured": "now"}


def _fastest(operands: tuple, key: tuple, settled: bool) -> str:
    """Read from disk, or measured."""
    x, weight = operands[:2]
    own = own_products(x.device.index)
    if not own or x.numel() * weight.shape[0] < SMALL:
        return IMPL
    with torch.cuda.device(x.device), torch.no_grad():
        name, file = f"{_name(key)}, implementation{', settled' if settled else ''}", file_of(x.device.index)
        known = read(file).get(name, {})
        if known.get("impl") in (IMPL, *own) and known.get("own") == list(own):  # no kernel is newer
            return known["impl"]
        taken = [impl for impl in own if _takes(operands, impl)]
        ms = (
            _replayed(operands, {impl: partial(_run, operands, impl, settled) for impl in (IMPL, *taken)})
            if taken
            else {}
        )
        fastest = min(ms, key=ms.get, default=IMPL)
        write(file, name, {"impl": fastest, "ms": ms, "own": list(own)})
        return fastest


@cache
def own_products(index: int | None) -> tuple[str, ...]:
    """The implementations that compute without cuBLASLt, are built and run on the device."""
    arch, states = arch_of(*torch.cuda.get_device_capability(index)), report.state().get("linear", {})
    return tuple(
        v.name
        for v in families()["linear"].variants
        if v.device == "cuda"
        and v.archs == ("sm_90a",)
        and plan.claims(v, arch)
        and states.get(v.name, {}).get("status") != "failed"
    )


def _takes(operands: tuple, impl: str) -> bool:
    try:
        _run(operands, impl)
    except Unsupported:
        return False
    return True


def _name(key: tuple) -> str:
    """The problem in words that hold for any process."""
    shape, stride, weight, weight_stride, no_bias, residual, activation, dtype, _, addresses = key
    rows = 1
    for n in shape[:-1]:
        rows *= n
    words = [
        f"{rows}x{shape[-1]}x{weight[0]}",
        str(dtype).removeprefix("torch."),
        f"strides {tuple(stride)} {tuple(weight_stride)}",
    ]
    words += ["no bias" if no_bias else "bias", f"residual {tuple(residual)}" if residual else "no residual"]
    return ", ".join([*words, f"activation {activation}", f"addresses {addresses}"])


def _run(operands: tuple, impl: str = IMPL, settled: bool = False) -> Any:
    return kernels.call("linear", *operands, settled, impl=impl)


def _remember(operands: tuple, words) -> None:
    kernels.call("linear_remember", *operands, torch.tensor(words, dtype=torch.int64), impl=IMPL)


def _works(operands: tuple, words) -> bool:
    """Whether the algorithm computes the problem; it is then the one that the extension takes."""
    _remember(operands, words)
    try:
        _run(operands)
        torch.cuda.synchronize()
    except RuntimeError as error:
        if "CUDA error" in str(error):
            raise
        return False
    return True


def _usable(operands: tuple, stored: dict) -> bool:
    words = stored.get("algorithm")
    return (
        isinstance(words, list)
        and len(words) == 9
        and all(isinstance(w, int) for w in words)
        and _works(operands, words)
    )


def _measure(operands: tuple) -> dict | None:
    """Time them all and have the extension keep the best; None where none works."""
    with torch.no_grad():
        listed = kernels.call("linear_algorithms", *operands, MOST, impl=IMPL).tolist()
        working = [i for i, words in enumerate(listed) if _works(operands, words)]
        if not working:
            return None
        best = _timed(operands, {i: listed[i] for i in working})
    first = working[0]
    fastest = min(best, key=best.get)
    winner = fastest if best[fastest] < _GAIN * best[first] else first
    _remember(operands, listed[winner])
    figures = {"algorithms": len(working), "first_ms": best[first], "best_ms": best[winner], "place": winner}
    return {**figures, "algorithm": listed[winner]}


def _timed(operands: tuple, algorithms: dict[int, list[int]]) -> dict[int, float]:
    """Milliseconds per call of each."""

    def by(words):
        def call():
            _remember(operands, words)
            _run(operands)

        return call

    return _replayed(operands, {i: by(words) for i, words in algorithms.items()})


def _replayed(operands: tuple, calls: dict[Any, Callable[[], Any]]) -> dict[Any, float]:
    """Milliseconds of each call by graph replay, in turn: the shortest of some rounds."""
    x, weight = operands[:2]
    graphs, pool, side = {}, torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    repeats = 8 if x.numel() * weight.shape[0] < 1 << 33 else 2
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for name, call in calls.items():
            graphs[name] = _captured(call, repeats, pool)
        best = dict.fromkeys(graphs, float("inf"))
        for _ in range(_ROUNDS):
            for name, graph in graphs.items():
                best[name] = min(best[name], _replay_ms(graph) / repeats)
    torch.cuda.current_stream().wait_stream(side)
    return best


def _captured(call: Callable[[], Any], repeats: int, pool):
    """``repeats`` calls as a CUDA graph on the current stream, which is a side stream."""
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        for _ in range(repeats):
            call()
    finally:
        graph.capture_end()
    return graph


def _replay_ms(graph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)
