"""The recorded case nearest to the settings of a page, and what differs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import streamlit as st

from fusescope import masks
from fusescope.charts import captions, tables
from fusescope.core.errors import RunError
from fusescope.core.schema.cases import ABSENT
from fusescope.store import answers
from fusescope.store.answers import Found, Question
from pages._ui.app import run_data, url
from pages._ui.widgets.text import device_text, md

_PLAIN = {
    "seq": "sequence",
    "seq_k": "keys",
    "seq_max": "context",
    "head_dim": "head size",
    "kv_heads": "KV heads",
}


def find(question: Question, recorded: bool | None = None) -> Found | None:
    """The nearest measured case; None where there is none, or no database to look it up."""
    try:
        found = _find(repr((question, recorded)), run_data.state(), question, recorded)
    except RunError:  # no duckdb: doctor says so
        return None
    return found[0] if found else None


@st.cache_data(max_entries=256, show_spinner=False)
def _find(asked: str, state: int, _question: Question, _recorded: bool | None) -> list[Found]:
    return answers.find(_question, recorded=_recorded, meaning=written_out)


def recorded_on(state: url.State) -> str | None:
    """The device whose recorded runs the page shows where nothing was measured here: as the URL says, else
    any."""
    known = list(dict.fromkeys(name for _, name in run_data.measured()))
    name = st.session_state[state.seed("recorded_on", None, url.one_of(known))]
    state.keep("recorded_on", name)
    return name


def case_name(found: Found) -> str | None:
    """The case as the "case" box of its run names it; None where the run has that case alone."""
    named = tables.cases(run_data.records(found.run))
    name = next((n for n, rows in named.items() if dict(rows[0].case) == dict(found.case)), None)
    return name if len(named) > 1 else None


def differences(found: Found) -> str:
    """ "sequence 4,096 instead of 3,000, float16 instead of bfloat16"; "" where nothing differs. Text for
    Markdown."""
    return md(", ".join(difference(key, *pair) for key, pair in found.differs.items()))


def caption(found: Found, asked: Question) -> str:
    """What stands above a recorded run that is shown where nothing was measured here."""
    device, differs = md(device_text(found.device_name)), differences(found)
    if not asked.case:
        return f"A recorded run ({device}), until the settings of the form are valid:"
    if not differs:
        return f"Recorded for these settings on {device}:"
    return f"Closest recorded run ({device}): {differs}."


def written_out(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """The case with its mask's defaults at its length: "bigbird" on 512 keys is the same mask as one that is
    given all of these numbers."""
    text, keys = case.get("mask"), case.get("seq_k") or case.get("seq")
    named = isinstance(text, str) and not text.startswith("file:")
    return {**case, "mask": _resolved(text, keys)} if named and isinstance(keys, int) else case


@lru_cache(maxsize=4096)
def _resolved(text: str, keys: int) -> str:
    try:
        return str(masks.parse(text).resolved(keys))
    except ValueError:  # of a mask that is not known here
        return text


def difference(key: str, asked: Any, had: Any) -> str:
    """ "sequence 4,096 instead of 3,000"; of two masks of one name the parameters: "mask left 64 instead of
    128"."""
    one, other = (_of_mask(text) for text in (asked, had))
    if key == "mask" and one[0] == other[0] != "file":
        names = [n for n in {**one[1], **other[1]} if one[1].get(n) != other[1].get(n)]
        pairs = ((n, other[1].get(n, "default"), one[1].get(n, "default")) for n in names)
        return "mask " + ", ".join(f"{n.replace('_', ' ')} {b} instead of {a}" for n, b, a in pairs)
    name = "" if key in ("dtype", "device") else f"{_PLAIN.get(key, key.replace('_', ' '))} "
    asked, had = (ABSENT.get(key) if value is None else value for value in (asked, had))
    written = _lengths if key == "lengths" else _value
    return f"{name}{written(had)} instead of {written(asked)}"


def _of_mask(text: Any) -> tuple[str, dict[str, str]]:
    """("sliding_window", {"left": "64"}) of "sliding_window:left=64"."""
    name, _, settings = str(text).partition(":")
    return name, dict(one.partition("=")[::2] for one in settings.split(",") if one)


def _lengths(value: Any) -> str:
    return _value(value if value is None else captions.lengths(str(value)))


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else device_text(str(value))


def of_spec(spec: Mapping[str, Any], device_name: str | None = None) -> Question:
    """The question that the first case of a specification asks; without a case, what there is of the operator
    at all."""
    case = next(iter(spec.get("cases") or ()), None)
    return Question(str(spec["op"]), dict(case or {}), spec.get("dtype") if case else None, device_name)
