"""One event of a Chrome trace with what the tables need of it; decoding a run of events with msgspec, or json
where it lacks.

msgspec reads straight into the typed form and skips every other key: a gigabyte costs seconds and no memory.
The form is the same without it, from json with the garbage collector off, several times slower.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np

from fusescope.profiling.chrome import exact
from fusescope.profiling.table import ABSENT

ARGS = {
    "external_id": "External id",
    "external_old": "external id",
    "correlation": "correlation",
    "device": "device",
    "stream": "stream",
    "registers": "registers per thread",
    "shared": "shared memory",
    "grid": "grid",
    "block": "block",
    "graph": "graph id",
    "node": "graph node id",
    "estimate": "est. achieved occupancy %",
    "bytes_": "bytes",
    "size": "size",
    "kind": "kind",
    "shapes": "Input Dims",
    "types": "Input type",
    "sequence": "Sequence number",
    "hierarchy": "Module Hierarchy",
    "addr": "Addr",
    "mem_bytes": "Bytes",
    "allocated": "Total Allocated",
    "reserved": "Total Reserved",
    "device_type": "Device Type",
    "device_id": "Device Id",
    "collective": "Collective name",
    "elements_in": "In msg nelems",
    "elements_out": "Out msg nelems",
    "group_size": "Group size",
    "element": "dtype",
    "group_name": "Process Group Name",
    "group_ranks": "Process Group Ranks",
    "source_rank": "Src Rank",
    "target_rank": "Dst Rank",
    "number": "Seq",
}
_AS_TEXT = ("shapes", "types")  # kept as the text of their JSON, in bytes
_EVENT = {"ph": "ph", "name": "name", "cat": "cat", "ts": "ts", "dur": "dur", "pid": "pid", "tid": "tid"}
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)|\\.", re.DOTALL
)  # 1: half of a pair
_NO_NUMBER = re.compile(rb'(?<=[:,\[])(\s*)(?:"N/A"|[-+]?(?:nan|inf|infinity))(?=\s*[,}\]])', re.IGNORECASE)


class NotJson(ValueError):
    """The text is no sequence of JSON objects: cut in the wrong place, or broken."""


def _structs():
    """(decoder of events with times as numbers, with exact times, empty args), or None without msgspec."""
    try:
        import msgspec
    except ModuleNotFoundError:
        return None
    scalar = int | float | str | bool | None
    kinds = [(n, msgspec.Raw, msgspec.Raw(b"")) if n in _AS_TEXT else (n, Any, None) for n in ARGS]
    args = msgspec.defstruct("Args", kinds, rename=ARGS, gc=False)
    fields = [(n, scalar, None) for n in _EVENT if n not in ("ts", "dur")] + [("args", args | None, None)]

    def decoder(kind: Any, absent: Any):
        times = [("ts", kind, absent), ("dur", kind, absent)]
        return msgspec.json.Decoder(
            list[msgspec.defstruct("Event", [*fields, *times], rename=_EVENT, gc=False)]
        )

    return decoder(scalar, None), decoder(msgspec.Raw, msgspec.Raw(b"null")), msgspec


class Run:
    """Some events of a file in its order: ``events``, and their ``ts`` and ``dur`` in exact ns (int64;
    ABSENT, BEYOND).

    An event has ph, name, cat, pid, tid and args (None, or an object with the keys of ARGS; absent ones are
    None).
    """

    __slots__ = ("_whole", "dur", "events", "ts")

    def __init__(self, events: list, ts: np.ndarray, dur: np.ndarray, whole: Callable[[], list[dict]]):
        self.events, self.ts, self.dur, self._whole = events, ts, dur, whole

    def __len__(self) -> int:
        return len(self.events)

    def args(self) -> list[dict]:
        """All arguments of each event, whatever their names: a counter's are anybody's. The text is decoded
        once more."""
        found = (data.get("args") for data in self._whole())
        return [args if isinstance(args, dict) else {} for args in found]


class Decoder:
    """Decodes texts of events without the brackets around them: ``decode(b'{…},{…}') -> Run``."""

    def __init__(self, use_msgspec: bool = True):
        self._exact = False
        self._fast = _structs() if use_msgspec else None

    def decode(self, text: bytes) -> Run:
        """The events; NotJson where the text is no sequence of JSON values, ValueError where one is no
        event."""
        whole = b"[" + text + b"]"
        try:
            return self._decode(whole)
        except NotJson:
            mended = _NO_NUMBER.sub(rb"\1null", whole)  # nan and inf are no JSON, but some writers have them
            if len(mended) == len(whole):
                raise
            return self._decode(mended)

    def _decode(self, text: bytes) -> Run:
        if self._fast is None:
            return _with_json(text)
        quick, whole, msgspec = self._fast

        def data() -> list[dict]:
            try:
                return msgspec.json.decode(text)
            except RecursionError:
                raise ValueError("its events are nested too deeply") from None

        try:
            if not self._exact:
                events = quick.decode(text)
                ts, lossy = exact.column([e.ts for e in events], ABSENT)
                dur, lossy_too = exact.column([e.dur for e in events], ABSENT)
                if not lossy and not lossy_too:
                    return Run(events, ts, dur, data)
                self._exact = True  # and from here on: all times of a file are alike
            events = whole.decode(text)
            ts, dur = (
                exact.column([_plain(t) for t in times], ABSENT)[0]
                for times in zip(*((e.ts, e.dur) for e in events))
            )
            return Run(events, ts, dur, data)
        except msgspec.ValidationError as error:
            raise ValueError(f"one of its events is malformed ({error})") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if "UTF-8" in str(error) or isinstance(error, UnicodeDecodeError):
                return self._decode(text.decode(errors="replace").encode())
            if "surrogate" in str(error):
                mended = _ESCAPE.sub(lambda m: rb"\ufffd" if m[1] else m[0], text)
                if mended != text:
                    return self._decode(mended)
            raise NotJson(str(error)) from None
        except RecursionError:
            raise ValueError("its events are nested too deeply") from None


def plain(e) -> tuple[dict, dict | None]:
    """An event as dicts of numbers and texts, for another process; ``event(*plain(e))`` is one like it."""
    args = None if e.args is None else {n: getattr(e.args, n) for n in ARGS}
    if args is not None:
        args |= {n: bytes(args[n]) for n in _AS_TEXT}
    return {n: getattr(e, n) for n in ("ph", "name", "cat", "pid", "tid")}, args


def event(fields: dict, args: dict | None) -> SimpleNamespace:
    return SimpleNamespace(**fields, args=None if args is None else SimpleNamespace(**args))


def _plain(raw) -> str | None:
    text = bytes(raw)
    return None if text == b"null" else text.strip(b'"').decode(errors="replace")


class _Object:
    __slots__ = (*_EVENT, "args")

    def __init__(self, data: dict):
        for name in _EVENT:
            value = data.get(name)
            if isinstance(value, dict | list):
                raise ValueError(f"one of its events is malformed (its {name} is no text or number)")
            setattr(self, name, value)
        args = data.get("args")
        if args is not None and not isinstance(args, dict):
            raise ValueError("one of its events is malformed (its args are no object)")
        self.args = None if args is None else _Args(args)


class _Args:
    __slots__ = tuple(ARGS)

    def __init__(self, data: dict):
        for name, key in ARGS.items():
            value = data.get(key)
            if name in _AS_TEXT:
                value = b"" if value is None else json.dumps(value, default=float).encode()
            setattr(self, name, float(value) if isinstance(value, Decimal) else value)


def _with_json(text: bytes) -> Run:
    was = gc.isenabled()
    gc.disable()
    try:
        data = json.loads(text.decode(errors="replace"), parse_float=Decimal)
    except RecursionError:
        raise ValueError("its events are nested too deeply") from None
    except ValueError as error:
        raise NotJson(str(error)) from None
    finally:
        if was:
            gc.enable()
    if not all(isinstance(e, dict) for e in data):
        raise ValueError("one of its events is malformed (it is no object)")
    events = [_Object(e) for e in data]
    ts, dur = (exact.column([getattr(e, name) for e in events], ABSENT)[0] for name in ("ts", "dur"))
    return Run(events, ts, dur, lambda: data)
