"""(code, milliseconds) pairs: what the cost model learns from, out of records or of text files of
``bits<TAB>milliseconds`` lines."""

from __future__ import annotations

import math
import stat
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

from fusescope.core.records import Record
from fusescope.search import encoding
from fusescope.search.scheme.setting import OP

_MOST_BYTES = 64 << 20  # 2^16 codes are 2 MB; a file is a stranger's


def read(path: str | Path) -> dict[str, float]:
    """{canonical code: ms} of a text file, the median where a scheme is there several times. ValueError
    naming the file and line for what is no pair, OSError where it cannot be read."""
    path = plain(path)
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(
            f"{path} is larger than {_MOST_BYTES >> 20} MiB; a file of pairs has a line of some 25 "
            "characters for each code"
        )
    return parse(path.read_text(errors="replace"), str(path))


def plain(path: str | Path) -> Path:
    """The path. ValueError for what is no plain file: opening a pipe waits for a writer. OSError where there
    is nothing."""
    path = Path(path)
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is no plain file")
    return path


def parse(text: str, name: str = "the text") -> dict[str, float]:
    """The same of text: a line a pair, code and milliseconds with a tab or spaces between; empty lines and #
    comments are skipped."""
    found: dict[str, list[float]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if len(words) != 2:
                raise ValueError(f"{len(words)} words instead of 2")
            code, ms = encoding.canonical(words[0]), float(words[1])
            if not (math.isfinite(ms) and ms > 0):
                raise ValueError(f"milliseconds are above 0 and finite, not {words[1]}")
        except ValueError as e:
            raise ValueError(
                f"{name}, line {number}: {e}; a line is 16 bits (or their value), a tab, milliseconds"
            ) from None
        found.setdefault(code, []).append(ms)
    if not found:
        raise ValueError(f"{name} holds no pair of bits and milliseconds")
    return {code: statistics.median(values) for code, values in found.items()}


def text(pairs: Mapping[str, float]) -> str:
    """The pairs as such a file."""
    return "".join(f"{code}\t{ms:.6g}\n" for code, ms in pairs.items())


def of_records(records: Iterable[Record]) -> dict[str, float]:
    """The ok schemes of op "layer" in the order of measuring; baselines and failures left out. ValueError
    where the records are of several settings: times of different sizes, masks, dtypes or devices are no pairs
    of one landscape."""
    return {code: ms for code, (ms, _) in _ok(records).items()}


def beside_unfused(records: Iterable[Record]) -> dict[str, float]:
    """The same with what slowed a scheme and the unfused layer alike taken out: a GPU's clock, another GPU of
    the same kind.

    The unfused layer is sampled in turn with each scheme: ms is the scheme's share of it, times what it takes
    in the median."""
    found = _ok(records)
    level = statistics.median([ms * speedup for ms, speedup in found.values() if speedup] or [1.0])
    return {code: level / speedup if speedup else ms for code, (ms, speedup) in found.items()}


def _ok(records: Iterable[Record]) -> dict[str, tuple[float, float | None]]:
    """{canonical code: (ms, how many times as fast as the unfused layer)}."""
    found, keys = {}, set()
    for r in records:
        if r.op == OP and r.status == "ok" and encoding.is_code(r.impl):
            keys.add(r.case_key)
            ms = r.ms
            found[encoding.canonical(r.impl)] = (ms, r.speedup.median if r.speedup else None)
    if len(keys) > 1:
        raise ValueError(
            f"the records are of {len(keys)} settings; choose one: {'; '.join(sorted(keys)[:3])}"
        )
    return found
