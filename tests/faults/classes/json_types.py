"""JSON of runs with values of other types: every field of the schemas × every wrong type, and objects drawn
by hypothesis; read, listed, shown and exported."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import wrong_types
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as fixed
from hypothesis import strategies as st
from make_runs import record

from fusescope.store import folder, library, transfer
from tests.faults.case import TryOne, folders, hold, refused_or_read
from tests.faults.commands import call

TITLE = "Values of wrong types in every field of a run's files"
LEAST = 3000
SHARE = 1.0
_DRAWN = 20  # objects of hypothesis in one case

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(codec="utf-8"), max_size=20)
    | st.sampled_from(["done", "\x1b]52;c;eA==\x07", "=cmd|'!A0", "../../etc/passwd", "1e999", "\u202e"])
)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


def drawn(seed: int, count: int) -> Callable:
    """So many examples of hypothesis, the same for a seed."""
    how = settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: fixed(seed)(how(test))


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    with folders(at) as home:
        wrong = wrong_types.write(home)
        ids = sorted(wrong)
        apart = at / "drawn"
        found, total = library.runs(limit=100_000)
        listed = {r.id for r in found} | {i for i, _ in library.broken()}
        hold(listed >= set(ids), "lost", f"{len(set(ids) - listed)} of {len(ids)} are not listed")
        hold(total + len(library.broken()) == len(ids) + 3, "lost", "sound runs are not listed")

        def try_one(seed: int) -> int:
            if seed % 4:
                return _generated(library.find(ids[(seed * 7) % len(ids)]), at)
            return _drawn(seed, apart)

        yield try_one


def _generated(path: Path, at: Path) -> int:
    steps = (
        lambda: folder.read(path),
        lambda: folder.records(path),
        lambda: folder.samples(path),
        lambda: transfer.export(path.name, at / "bundle.zip"),
    )
    for step in steps:
        with refused_or_read():
            step()
    for words in (["show"], ["show", "--json"]):
        code, out, _ = call("runs", words[0], path.name, *words[1:])
        hold(code in (0, 1, 2), "words", f"{path.name}: exit code {code}")
        if code == 0 and "--json" in words:
            json.loads(out)
    return len(steps) + 2


def _drawn(seed: int, apart: Path) -> int:
    """One run, whose every file has one value that hypothesis drew, at a place that it drew."""
    sound = {
        "run.json": ({k: v for k, v in wrong_types.RUN.items() if k != "contents"}, None),
        "notes.json": (wrong_types.NOTE, None),
        "results.jsonl": (record("add", 1, "eager"), "\n"),
        "samples.jsonl": (wrong_types.LINE, "\n"),
    }

    @drawn(seed, _DRAWN)
    @given(st.data())
    def each(data):
        shutil.rmtree(apart, ignore_errors=True)
        path = apart / "20260101-000000-bench-000000"
        path.mkdir(parents=True)
        broken = data.draw(st.sampled_from(sorted(sound)))
        for name, (value, end) in sound.items():
            whole = copy.deepcopy(value)
            if name == broken:
                _put(whole, data.draw(st.integers(0, 999)), data.draw(ANY))
            text = json.dumps(whole)
            (path / name).write_text(text + (end or ""), errors="surrogatepass")
        for read in (folder.read, folder.records, folder.samples):
            with refused_or_read():
                read(path)

    each()
    return _DRAWN * 3


def _put(whole: dict, at: int, value: object) -> None:
    """Replace one of all values, however deep, by another."""
    places: list[tuple[dict, str]] = []
    level = [whole]
    while level:
        holder = level.pop(0)
        places += [(holder, key) for key in holder]
        level += [v for v in holder.values() if isinstance(v, dict)]
    holder, key = places[at % len(places)]
    holder[key] = value
