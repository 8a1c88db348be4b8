"""What a job kind may say while it works. The worker implements it; tests and scripts use ``Collect``.

A kind never touches the run folder itself: the process that measures can then die without tearing what was
written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from fusescope.core.errors import Cancelled
from fusescope.core.records import Record
from fusescope.core.schema.lines import Lines


class Reporter(Protocol):
    def record(self, record: Record) -> None:
        """Append one finished record to results.jsonl."""

    def samples(
        self, case_key: str, impl: str, mode: str, milliseconds: list[float], state: list[dict] | None = None
    ) -> None:
        """Append raw samples (ms) of one record; mode is eager, eager_cold, graph or graph_cold.

        ``state`` holds one device-state dict per round (see measure/device_state.py), same length as the
        rounds.
        """

    def book(self, found: Sequence[Lines]) -> None:
        """Append several finished records, each with its samples, as ``samples`` and ``record`` do one by
        one: what a cluster finds comes by the hundred, as the lines to write."""

    def doing(self, case_key: str, impl: str, deadline_s: float) -> None:
        """Say what is about to run and how long it may take; a crash or hang from here on is booked on it."""

    def progress(self, done: int, total: int, message: str, eta_s: float | None = None) -> None: ...

    def log(self, text: str) -> None: ...

    def environment(self, **facts: Any) -> None:
        """Merge facts into run.json's environment (JSON values)."""

    def artifact(self, name: str) -> Path:
        """The path under artifacts/ to write; parent folders exist."""

    def skip(self) -> set[tuple[str, str]]:
        """(case_key, impl) pairs that already have a record and are not to be measured again."""

    def statuses(self) -> dict[tuple[str, str], str]:
        """The status of each of those records: a baseline that crashed is not tried again for the sake of the
        others."""

    def check(self) -> None:
        """Raise Cancelled when a stop was requested; call it between samples."""


class Collect:
    """A Reporter that keeps everything in memory (bench from a script, tests)."""

    def __init__(self, folder: Path | None = None):
        self.records: list[Record] = []
        self.raw: list[tuple[str, str, str, list[float], list[dict] | None]] = []
        self.facts: dict[str, Any] = {}
        self.lines: list[str] = []
        self.steps: list[tuple[int, int, str, float | None]] = []
        self.now: tuple[str, str, float] | None = None
        self.cancelled = False
        self._folder = folder

    def record(self, record: Record) -> None:
        self.records.append(record)

    def samples(self, case_key, impl, mode, milliseconds, state=None) -> None:
        self.raw.append((case_key, impl, mode, list(milliseconds), state))

    def book(self, found: Sequence[Lines]) -> None:
        for lines in found:
            for line in map(json.loads, lines.samples):
                self.samples(line["case_key"], line["impl"], line["mode"], line["ms"], line["state"])
            self.record(Record.from_json(json.loads(lines.record)))

    def doing(self, case_key: str, impl: str, deadline_s: float) -> None:
        self.now = (case_key, impl, deadline_s)

    def progress(self, done, total, message, eta_s=None) -> None:
        self.steps.append((done, total, message, eta_s))

    def log(self, text: str) -> None:
        self.lines.append(text)

    def environment(self, **facts: Any) -> None:
        self.facts.update(facts)

    def artifact(self, name: str) -> Path:
        if self._folder is None:
            raise ValueError("this reporter was made without a folder for artifacts")
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def skip(self) -> set[tuple[str, str]]:
        return set(self.statuses())

    def statuses(self) -> dict[tuple[str, str], str]:
        return {(r.case_key, r.impl): r.status for r in self.records}

    def check(self) -> None:
        if self.cancelled:
            raise Cancelled
