"""``bench``: the comparison of the job of that name inside the caller's process, without a run folder."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fusescope import masks, ops
from fusescope.core.machine import environment
from fusescope.core.machine.archs import arch_of
from fusescope.core.records import BenchSpec, Record
from fusescope.core.reporter import Collect
from fusescope.jobs.kinds import bench as kind
from fusescope.jobs.process.gpu_lock import Ticket, queued
from fusescope.jobs.spec.common import check_device

_POLL_S = 0.2


def bench(
    op: str,
    impls: str | Callable | Iterable[str | Callable] = "all",
    cases: Iterable[Mapping[str, Any]] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    baseline: str | Callable = "eager",
    cache: str = "warm",
    budget_s: float = 5.0,
    same_within: float = BenchSpec.same_within,
    seed: int = 0,
    log: Callable[[str], None] | None = None,
    **values: Any,
) -> list[Record]:
    """Check implementations of an operator against its float64 reference, time the correct ones in turn, and
    return one Record for each implementation and case.

        records = fusescope.bench("softmax", ["cpu", my_softmax], rows=4096, cols=[1000, 4096])

    op        an operator, such as "attention" or "gemm" (``fusescope bench --help`` lists them)
    impls     "all" that run on the device; names ("cpu", "v3_hopper", "sdpa", "file.py:function"); functions
              with the operator's Python signature (docs/own-kernel.md), recorded under their ``__name__``
    cases     complete or partial cases as dictionaries; the operator's defaults fill in the rest
    values    parameters by keyword, of the cases that do not give them; a list means each of its values (the
              cross product); a mask is a text or a Mask
    dtype     "float32", "float16", "bfloat16" or torch's; default float16 on a GPU, float32 on the CPU
    device    "cuda:0", "cpu" or a torch.device; default: the first GPU, else the CPU
    baseline  the implementation that Record.speedup is over, by name or as a function; it is measured too
    cache     "warm", "cold" or "both": the state of the caches before a sample
    budget_s  the most seconds of sampling a case in one mode, all implementations together; slow calls get up
              to three times as many, to reach ten samples
    same_within  half-width of the band of speed-ups around 1 that count as the same
    log       called with each message of progress and of the log

    Times are milliseconds: ``record.ms`` is the median of the headline mode (graph replay on a GPU, eager on
    the CPU), ``record.time_ms`` has every mode with its 95 % interval. A record that is not "ok" has a reason
    and no time. The device's lock is held meanwhile, so jobs of the app and other users wait; where it waits
    for them, it says so by ``log``, else by a UserWarning. Raises ValueError or TypeError for an operator,
    implementation, case, dtype or device that does not exist. A kernel that corrupts the CUDA context ends
    this process; ``fusescope bench`` runs it in one of its own.
    """
    from fusescope.measure.bench import Bench
    from fusescope.measure.subject import WithFunctions

    where = check_device(str(environment.devices()[0] if device is None else device))
    gpu = environment.gpu_of(where)
    arch = arch_of(*map(int, gpu["compute_capability"].split("."))) if gpu else None
    given = list(impls) if isinstance(impls, Iterable) and not isinstance(impls, str) else [impls]
    functions = _named([*given, baseline])
    texts = [name for name in given if not callable(name)]
    own = next((name for name, f in functions.items() if f is baseline), None)
    names = [i.name for i in ops.chosen(op, texts, where, arch)] if texts or not given else []
    known = baseline if own is None else next(iter(names), "eager")
    if taken := {"auto", *(i.name for i in ops.implementations(op, where))} & functions.keys():
        raise ValueError(f"{op} has its own {min(taken)}: give your function another __name__")
    spec = kind.validate(
        {
            "op": op,
            "impls": names or [known],
            "cases": [case for one in _given(cases) for case in _crossed({**values, **one})],
            "baseline": known,
            "dtype": str(dtype).removeprefix("torch.") if dtype else "float16" if gpu else "float32",
            "device": where,
            "cache": cache,
            "budget_s": budget_s,
            "same_within": same_within,
            "seed": seed,
        }
    )
    reporter = _Listener(log or (lambda text: None))
    if own is not None:
        spec |= {"baseline": own, "impls": names}
    whole = BenchSpec.from_json(spec | {"impls": [*spec["impls"], *functions]})
    with _held(gpu["uuid"] if gpu else "cpu", reporter, aloud=log is None):
        Bench(whole, reporter, WithFunctions(op, functions)).run()
    return reporter.records


def _named(given: Iterable[str | Callable]) -> dict[str, Callable]:
    """The functions by the names of their records."""
    found: dict[str, Callable] = {}
    for one in given:
        if isinstance(one, str):
            continue
        if not callable(one):
            raise TypeError(f"an implementation is a name or a function, not {one!r}")
        inner = getattr(one, "func", one)  # of a functools.partial
        name = getattr(inner, "__name__", type(one).__name__)
        if found.setdefault(name, one) is not one:
            raise ValueError(f"two functions are called {name}: give each a __name__ of its own")
    return found


def _given(cases: Iterable[Mapping[str, Any]] | None) -> Iterator[Mapping[str, Any]]:
    for case in ({},) if cases is None else cases:
        if not isinstance(case, Mapping):
            raise TypeError(f"cases is a list of dictionaries, a case each; {case!r} is none")
        yield case


def _crossed(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every choice out of the values that are lists; masks as texts."""
    axes = [v if isinstance(v, list | tuple) else [v] for v in values.values()]
    for choice in itertools.product(*axes):
        yield {k: _text(v) if isinstance(v, masks.Mask) else v for k, v in zip(values, choice)}


def _text(mask: masks.Mask) -> str:
    if isinstance(mask, masks.DenseMask) and not mask.path:
        raise ValueError(
            "a mask from an array has no text for the record: numpy.save it and give mask='file:path.npy'"
        )
    return str(mask)


@contextmanager
def _held(lock: str, reporter: _Listener, aloud: bool) -> Iterator[None]:
    """The device's place in the queue of all users, from the first try until the end; aloud: warn once of
    waiting."""
    ticket = Ticket(lock, "fusescope.bench")
    try:
        if ticket.warning:
            reporter.log(ticket.warning)
        while place := ticket.advance():
            reporter.log(text := queued("the device", place))
            if aloud:
                warnings.warn(f"fusescope.bench is {text}, behind another measurement", stacklevel=4)
                aloud = False
            time.sleep(_POLL_S)
        yield
    finally:
        ticket.close()


class _Listener(Collect):
    """Keeps the records and hands each new message on."""

    def __init__(self, say: Callable[[str], None]):
        super().__init__()
        self._say, self._last = say, ""

    def progress(self, done, total, message, eta_s=None) -> None:
        self.log(message)

    def log(self, text: str) -> None:
        if text != self._last:
            self._say(text)
        self._last = text
