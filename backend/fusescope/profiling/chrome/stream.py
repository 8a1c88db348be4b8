"""Reading a Chrome trace of any size in flat memory: cut into runs of whole events, never held as a whole.

A run is cut where an object ends and the next begins; what is before the cut is decoded as a list of its own,
which succeeds only where the cut is between two events and not inside one (or inside a text): a wrong guess
costs a second try, never data. For the same reason several readers may take a portion of the file each: where
all decode, all began and ended rightly.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fusescope.profiling.chrome.events import Decoder, NotJson, Run

CHUNK = 1 << 20  # what fits the caches decodes fastest
SEAM = 1 << 18  # bytes from a portion's begin in which its first event is looked for
MAX_BYTES = 32 << 30  # unpacked
_MAX_HEAD = 64 << 20  # before and after the events
_MOST_BRACKETS = 2000  # looked at from the end of the file for the one that closes the events
_WINDOW, _MOST_CUTS = (
    1 << 16,
    8,
)  # how far from the end of a piece a cut is looked for, and how many are tried
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_SPACE = b" \t\r\n"
_BLANK = re.compile(r"[ \t\r\n]*")


class NoSeam(ValueError):
    """Between two portions of a file no end of an event was found: the file is to be read as a whole."""


class ChromeTrace:
    """A trace file, .json or .json.gz whatever its name says. ``metadata`` is whole once ``runs`` has been
    walked to its end.

    begin, end: bytes of the unpacked text; the portion from the first event that begins after the one up to
    the first that begins after the other. Where all portions of a file are read without an error, their
    events and metadata are those of the file. ``read`` is how many bytes of the file itself have been taken,
    of ``size``.
    """

    def __init__(
        self,
        path: Path,
        decoder: Decoder | None = None,
        chunk: int = CHUNK,
        begin: int = 0,
        end: int | None = None,
    ):
        self.path, self.name, self.size = Path(path), Path(path).name, Path(path).stat().st_size
        self.metadata: dict[str, Any] = {}
        self.notes: list[str] = []
        self.read = 0
        self._decoder, self._chunk = decoder or Decoder(), chunk
        self._begin, self._end = begin, end
        self._unpacked = 0

    def runs(self) -> Iterator[Run]:
        """The events in the order of the file. ValueError, one sentence with the file's name, for what is no
        trace; NoSeam."""
        try:
            with open(self.path, "rb") as raw:
                yield from self._walk(raw)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            what = (
                "ends too early: the compressed file is truncated"
                if isinstance(error, EOFError)
                else f"is damaged ({error})"
            )
            raise ValueError(f"{self.name} {what}") from None
        except NotJson as error:
            raise ValueError(f"{self.name} is no valid JSON ({error})") from None
        except RecursionError:
            raise ValueError(f"{self.name} is nested too deeply for a trace") from None
        except UnicodeDecodeError:
            raise ValueError(f"{self.name} is no text: a trace is JSON in UTF-8") from None

    def _walk(self, raw: BinaryIO) -> Iterator[Run]:
        source = gzip.GzipFile(fileobj=raw) if raw.read(2) == b"\x1f\x8b" else raw
        raw.seek(0)
        rest, bare = self._head(source, raw)
        if self._begin:
            rest = self._seam(source, raw, self._begin)[1]
        while True:
            more = self._more(source, raw, len(rest))
            rest += more
            if not more:
                break
            events, rest = self._cut(rest)
            if events is not None:
                yield events
        yield self._last(rest, bare) if self._end is None else self._until_seam(rest, source, raw)

    def _more(self, source: BinaryIO, raw: BinaryIO, left: int = 0) -> bytes:
        """The next piece, as long as what is left undecoded: what needs many pieces is not looked at once for
        each."""
        most = max(self._chunk, left)
        text = source.read(most if self._end is None else max(0, min(most, self._end - self._unpacked)))
        self._took(len(text), raw)
        return text

    def _took(self, count: int, raw: BinaryIO) -> None:
        self._unpacked += count
        self.read = raw.tell()
        if self._unpacked > MAX_BYTES:
            raise ValueError(f"{self.name} holds more than {MAX_BYTES >> 30} GiB; export fewer steps")

    def _seam(self, source: BinaryIO, raw: BinaryIO, place: int) -> tuple[bytes, bytes]:
        """(up to the end of the last event that began before that place, from the next event on) of the text
        from there on."""
        if self._unpacked > place:
            raise NoSeam(f"{self.name}: a portion of it ends before its events begin")
        if source is raw:
            raw.seek(place)
            self._unpacked = place
        while self._unpacked < place:
            skipped = source.read(min(CHUNK, place - self._unpacked))
            if not skipped:
                break
            self._took(len(skipped), raw)
        text = source.read(SEAM)
        self._took(len(text), raw)
        for m in _BETWEEN.finditer(text):
            if _is_event(text[m.end() : m.end() + _WINDOW]):
                return text[: m.start() + 1], text[m.end() :]
        raise NoSeam(f"{self.name}: no event begins within {SEAM} bytes of byte {place}")

    def _until_seam(self, rest: bytes, source: BinaryIO, raw: BinaryIO) -> Run:
        """The events from what is left undecoded up to the portion's end."""
        return self._decoder.decode(rest + self._seam(source, raw, self._end)[0])

    def _head(self, source: BinaryIO, raw: BinaryIO) -> tuple[bytes, bool]:
        """What follows the bracket that opens the events, and whether the file is a bare list of them."""
        text = self._more(source, raw)
        if text.startswith(b"\xef\xbb\xbf"):
            text = text[3:]
        start = text.lstrip(_SPACE)
        if not start:
            raise ValueError(f"{self.name} is empty")
        if start[:1] == b"[":
            return start[1:], True
        if start[:1] != b"{":
            raise ValueError(
                f"{self.name} is no JSON: a trace begins with {{ or [, this file with {start[:12]!r}"
            )
        while True:
            rest = self._members(start)
            if rest is not None:
                return rest, False
            more = self._more(source, raw, len(start))
            if not more or len(start) > _MAX_HEAD:
                self._members(start, whole=True)
                raise ValueError(f"{self.name} holds no list of events named traceEvents")
            start += more

    def _members(self, text: bytes, whole: bool = False) -> bytes | None:
        """Take the members before the events into ``metadata``; what follows the events' bracket, None where
        more is needed."""
        known: dict[str, Any] = {}
        source = text.decode("latin-1")  # one letter a byte; what is taken out is decoded as it should be
        at = 1
        try:
            while source[(at := _skip(source, at)) : at + 1] != "}":
                key, at = _value(source, at)
                at = _skip(source, at)
                if not isinstance(key, str) or source[at : at + 1] != ":":
                    raise json.JSONDecodeError("a name and a colon are missing", "", at)
                at = _skip(source, at + 1)
                if key == "traceEvents" and source[at : at + 1] == "[":
                    self.metadata |= known
                    return text[at + 1 :]
                known[key], at = _value(source, at)
                at = _skip(source, at)
                if source[at : at + 1] == ",":
                    at += 1
        except RecursionError:
            raise ValueError(f"{self.name} is nested too deeply for a trace") from None
        except ValueError as error:
            if whole:
                raise ValueError(
                    f"{self.name} is no valid JSON, or is truncated before its events ({error})"
                ) from None
            return None
        if "traceEvents" in known:
            raise ValueError(
                f"{self.name}: traceEvents is a list of events, not {type(known['traceEvents']).__name__}"
            )
        raise ValueError(f"{self.name} holds no list of events named traceEvents")

    def _cut(self, text: bytes) -> tuple[Run | None, bytes]:
        """The events before the last cut that holds, and what is left; None where there is none yet."""
        cuts = list(_BETWEEN.finditer(text, max(0, len(text) - _WINDOW)))
        for m in cuts[::-1][:_MOST_CUTS]:
            try:
                return self._decoder.decode(text[: m.start() + 1]), text[m.end() :]
            except NotJson:
                continue
        end = _whole_events(
            text
        )  # objects within objects, or texts that look alike: walked one by one, which is slow and sure
        if end:
            return self._decoder.decode(text[: end - 1]), text[end:]
        if len(text) > _MAX_HEAD + self._chunk:
            raise ValueError(
                f"{self.name}: no event ends within {_MAX_HEAD >> 20} MiB; it is no trace, or is damaged"
            )
        return None, text

    def _last(self, text: bytes, bare: bool) -> Run:
        """The events up to the closing bracket, and the members after it."""
        end = len(text)
        for _ in range(_MOST_BRACKETS):
            end = text.rfind(b"]", 0, end)
            if end < 0:
                break
            tail = text[end + 1 :]
            if not _closes(tail, bare):
                continue
            body = text[:end].strip(_SPACE)
            try:
                events = self._decoder.decode(
                    body.rstrip(b",").rstrip(_SPACE) if body.endswith(b",") else body
                )
            except NotJson:
                continue
            if not bare:
                self.metadata |= json.loads(b"{" + (tail.lstrip(_SPACE).removeprefix(b",") or b"}"))
            return events
        if bare:
            try:  # the trace format lets a writer that was stopped leave out the bracket
                events = self._decoder.decode(text.strip(_SPACE).rstrip(b",").rstrip(_SPACE))
                self.notes.append("the list of events is not closed; every event in it is whole")
                return events
            except NotJson:
                pass
        raise ValueError(
            f"{self.name} is truncated or no valid JSON: its list of events has no end; export it again"
        )


def _closes(tail: bytes, bare: bool) -> bool:
    tail = tail.strip(_SPACE)
    if bare:
        return not tail
    if not (tail.startswith((b",", b"}")) and tail.endswith(b"}")):
        return False
    try:
        return isinstance(json.loads(b"{" + tail.removeprefix(b",")), dict)
    except (ValueError, RecursionError):
        return False


def _is_event(text: bytes) -> bool:
    """Whether an object with a phase is at the beginning, and not in the middle of another one's text."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text.decode("latin-1"))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "ph" in value


def _whole_events(text: bytes) -> int:
    """The place behind the last comma that follows an event; 0 where none does."""
    source, end = text.decode("latin-1"), 0
    decode, at = json.JSONDecoder().raw_decode, _skip(source, 0)
    while source[at : at + 1] == "{":
        try:
            _, at = decode(source, at)
        except ValueError:
            break
        at = _skip(source, at)
        if source[at : at + 1] != ",":
            break
        end = at + 1
        at = _skip(source, end)
    return end


def _value(source: str, at: int) -> tuple[Any, int]:
    value, end = json.JSONDecoder().raw_decode(source, at)
    if isinstance(value, str | dict | list) and not source.isascii():
        value = json.loads(source[at:end].encode("latin-1").decode(errors="replace"))
    return value, end


def _skip(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()
