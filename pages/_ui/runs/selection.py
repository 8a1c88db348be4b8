"""What is done with the selected runs: compare, tag, delete. Recorded runs are read-only and stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from fusescope.charts import captions
from fusescope.charts.numbers import plural
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.store import folder, library, transfer
from pages._ui.app import callbacks, run_data
from pages._ui.widgets import cell_text, screen
from pages._ui.widgets.text import md, run_name

_KEY = "runs/chosen"
_NAME = 48  # characters shown of a name that stands beside others
_BESIDE, _CHARACTER = 620, 7  # pixels that a line leaves to the rest of it, and of a character


def chosen() -> list[str]:
    """The selected runs that still exist, in the order of their selection, over all pages of the list."""
    st.session_state[_KEY] = [r for r in st.session_state.get(_KEY, []) if run_data.exists(r)]
    return list(st.session_state[_KEY])


def update(listed: Sequence[str], ticked: Sequence[str]) -> list[str]:
    """The selection after these of the listed runs are ticked; those on other pages stay."""
    kept = [r for r in chosen() if r not in listed or r in ticked]
    st.session_state[_KEY] = kept + [r for r in ticked if r not in kept]
    return list(st.session_state[_KEY])


def bar(run_ids: list[str]) -> None:
    """The buttons, and how many are selected: always one line, so that the table under it stays in place."""
    runs = [run_data.read(run_id) for run_id in run_ids]
    free = [run for run in runs if not run.recorded]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if st.button("Compare", type="primary", key="runs/compare", disabled=len(runs) < 2):
            st.switch_page("pages/runs.py", query_params={"compare": ",".join(run_ids)})
        with st.popover("Tag", disabled=not free):
            _tag(free, len(runs) - len(free))
        with st.popover("Delete", disabled=not free):
            _delete(free, len(runs) - len(free))
        st.button("Clear", key="runs/unselect", on_click=_clear, disabled=not runs)
        st.caption(_said(runs), width="stretch")


def _said(runs: list[Run]) -> str:
    if not runs:
        return "Select runs at the left edge to compare, tag or delete them."
    if len(runs) == 1:
        name, room = run_name(runs[0]), (screen.width() - _BESIDE) // _CHARACTER
        return f"1 selected: {md(_short(name, max(_NAME, room)))}; select one more to compare."
    return f"{len(runs)} selected; the base is A, {md(base(runs))}"


def base(runs: Sequence[Run]) -> str:
    """What tells the first run from the others, with a full stop: the part of its name in which it differs;
    its date where another has the same name."""
    names = [run_name(run) for run in runs]
    name = names[0]
    if name in names[1:]:
        return f"{_short(name)} of {captions.when(runs[0])}."
    telling = cell_text.telling(names)[0]
    text = _short(telling)
    return f"{'… ' if telling != name else ''}{text}{'' if text.endswith('…') else '.'}"


def _short(name: str, most: int = _NAME) -> str:
    return name if len(name) <= most else name[: most - 1].rstrip() + "…"


def _tag(runs: list[Run], kept: int) -> None:
    with st.form("runs/tag", border=False):
        add = st.text_input("add tags", help="comma-separated")
        remove = st.text_input("remove tags", help="comma-separated")
        if st.form_submit_button(f"Change tags of {plural(len(runs), 'run')}", type="primary"):
            added, removed = ([t.strip() for t in text.split(",") if t.strip()] for text in (add, remove))
            for run in runs:
                tags = [t for t in dict.fromkeys([*run.tags, *added]) if t not in removed]
                folder.write_notes(library.find(run.id), tags=tags)
            st.rerun()
    _stay(kept)


def _delete(runs: list[Run], kept: int) -> None:
    whose = "all its files" if len(runs) == 1 else "all their files"
    st.markdown(f"Delete {plural(len(runs), 'run')} and {whose}? This cannot be undone.")
    st.markdown("\n".join(f"- {md(run_name(run))} ({run.id})" for run in runs))
    _stay(kept)
    st.button(
        f"Delete {plural(len(runs), 'run')}",
        type="primary",
        key="runs/delete_chosen",
        on_click=callbacks.careful(_each),
        args=(transfer.delete, [run.id for run in runs]),
    )


def _stay(kept: int) -> None:
    if kept:
        st.caption(f"{plural(kept, 'recorded run')} of the selection cannot be changed.")


def _each(work: Callable[[str], None], run_ids: list[str]) -> None:
    """Do it for every run; those that refuse are named together."""
    refused = []
    for run_id in run_ids:
        try:
            work(run_id)
        except (ValueError, RunError, OSError) as error:
            refused.append(str(error))
    if refused:
        raise ValueError("; ".join(refused))


def _clear() -> None:
    st.session_state[_KEY] = []
    st.session_state["runs/drawing"] = st.session_state.get("runs/drawing", 0) + 1
