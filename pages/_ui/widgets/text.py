"""Names of runs, states and devices, and text that is safe inside Markdown and HTML."""

from __future__ import annotations

import html
import os
import re

from fusescope.charts import captions, numbers
from fusescope.core.records import Run
from fusescope.jobs import kinds

_STATUS = {
    "queued": "… queued",
    "running": "▶ running",
    "cancelling": "■ cancelling",
    "done": "✓ done",
    "failed": "✗ failed",
    "cancelled": "■ cancelled",
    "interrupted": "! interrupted",
    "incomplete": "! incomplete",
}


_JOINER = "\u2060"
_ACTIVE = re.compile(r"(?i)(?<=:)(?=//)|(?<=www)(?=\.)|(?<=\w@)(?=\w)|(?<=:)(?=[\w+-]+(?:/\w+)?:)")
"""Where an invisible joiner parts what Streamlit's Markdown makes links and icons of even when it is escaped:
https://, www., names@hosts, :material/home:."""


def md(text: str | None) -> str:
    """Text of a run as plain characters inside Markdown: a title from elsewhere must not load a picture, be a
    link, or pose as one."""
    inert = _ACTIVE.sub(_JOINER, text or "").replace("\n", " ")
    return re.sub(r"([\\`*_{}\[\]()#+!|<>~$:-])", r"\\\1", inert)


def escape(value: object) -> str:
    """Text as plain characters inside HTML; "n/a" for None."""
    return html.escape(numbers.NA if value is None else str(value), quote=False)


def file_name(uploaded: str, default: str) -> str:
    """The name of an uploaded file as one for this disk: without its folder, without a leading dot, at most
    80 characters, all of them harmless in a path and in a mask's text."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", os.path.basename(uploaded))[-80:].lstrip("._") or default


def reason_text(run: Run) -> str:
    """Why a run ended early, as a sentence."""
    return "Cancelled by user." if run.status == "cancelled" else run.reason or ""


def status_text(status: str) -> str:
    """A run's state with a sign and a word."""
    return _STATUS.get(status, status)


def device_text(name: str) -> str:
    """A device's name as captions have it: "Intel Xeon" of "Intel(R) Xeon(R) Processor"."""
    return captions.device(name)


def run_name(run: Run) -> str:
    """The run's title, else what it did."""
    return kinds.name(run)


def sentence(error: BaseException | str) -> str:
    """An error or a note as the one sentence a person can act on."""
    text = str(error).strip()
    first = text.partition(" ")[0].rstrip(".,")
    named = any(mark in first for mark in "_/:.")  # a parameter or a path is written as it is
    return (text if named else text[:1].upper() + text[1:]) or type(error).__name__
