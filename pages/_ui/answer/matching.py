"""Whether a run is the answer to what a form asks for: the same case of one kind of job, being measured, or
measured with other settings."""

from __future__ import annotations

from collections.abc import Mapping

from fusescope.charts import template
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from pages._ui.answer import runs
from pages._ui.app import url

Words = Mapping[str, str]
"""The keys of a specification that make an answer what it is, and what a person calls each."""


def running(run_id: str | None, spec: Mapping, words: Words) -> bool:
    """Whether just this is being measured already: a second click, or an impatient one, starts nothing."""
    if not run_id or not runs.exists(run_id):
        return False
    run = runs.read(run_id)
    return run.live and _comparable(run.spec, words) == _comparable(spec, words)


def differs(run: Run, spec: Mapping | None, words: Words) -> str | None:
    """Why the run on show is not the answer to what is chosen; None where it is, or was recorded
    elsewhere."""
    if run.live or run.recorded or spec is None:
        return None
    asked, had = _comparable(spec, words), _comparable(run.spec, words)
    changed = [word for key, word in words.items() if asked[key] != had[key]]
    if not changed:
        return None
    when = template.date(run.finished or run.started or run.created)
    return f"Answer of {when} to other settings ({', '.join(changed)}). Press Run for the ones chosen now."


def of_kind(state: url.State, run_id: str, kind: str, called: str) -> bool:
    """Whether the URL's run can be shown on a page for runs of ``kind``; else one sentence, in which that
    kind is ``called`` so."""
    try:
        run = runs.read(run_id)
    except RunError as error:
        state.problems.append(f"The run of the URL cannot be shown: {error}.")
        return False
    if run.kind != kind:
        state.problems.append(f"Run {run_id} is a {run.kind}, not {called}; open it on the Runs page.")
        return False
    return True


def _comparable(spec: Mapping, words: Words) -> dict:
    impls = {*(spec.get("impls") or ()), spec.get("baseline")}
    return {key: spec.get(key) for key in words} | {
        "impls": impls,
        "cases": [dict(c) for c in spec.get("cases") or ()],
    }
