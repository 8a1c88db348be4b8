"""The Models page: the form, the run it started, its result, and what is known of a model without a run."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fusescope import models
from fusescope.charts import tables
from fusescope.core.records import Record, Run
from fusescope.store.answers import Found
from pages._ui.answer import answer, matching, nearest, workers
from pages._ui.answer.views import Look
from pages._ui.app import device, redraw, run_data, url
from pages._ui.models import several_devices, views
from pages._ui.models.form import Choice
from pages._ui.widgets.text import device_text, md

_COMPARED = {
    "op": "model",
    "impls": "execution modes",
    "cases": "sizes",
    "baseline": "baseline",
    "dtype": "dtype",
    "device": "device",
    "cache": "cache",
    "checkpoint": "checkpoint",
}


def result(state: url.State, choice: Choice) -> None:
    """The result of what was run, live while it runs, dimmed and dated once other settings are chosen; the
    views under it."""
    where = nearest.recorded_on(state)
    run_id = matching.shown(
        state, "model", choice.op, choice.spec, choice.pressed, _COMPARED, "a comparison of a model"
    )
    first, stand_in = answer.ALL, run_id is None
    if run_id is None and (found := _recorded(choice, where, bool(state.refused))):
        run_id, first = found.run, nearest.case_name(found) or answer.ALL
    if not run_id:
        several_devices.draw(choice.op)
    if run_id:
        run, records = run_data.read(run_id), run_data.records(run_id)
        asked = choice.spec and {**choice.spec, "cases": choice.whole}  # a recorded run may have all layers
        dimmed = matching.earlier(state, run, choice.spec, _COMPARED, asked)
        if run.live:
            answer.follow(run_id, answer.ALL, "execution modes")
        else:
            answer.heading(run, dimmed=dimmed)
        box = st.container()
        workers.draw(run, records)
        if not stand_in:
            matching.notice(state, run, choice.spec, _COMPARED, asked)
        sentence = answer.sentence_box(dimmed, box)
        with box:
            several_devices.draw(choice.op)
        if records:
            layers = choice.layers and choice.layers.empty()

            def draw(now: url.State) -> None:
                look = _look(now, run, records, first)
                _layers(layers, choice, look)
                with st.container(key="old_answer" if dimmed else None):
                    if not run.live:
                        answer.headline(look, sentence)
                        views.warnings(look)
                redraw.part(now, lambda inner: views.draw(inner, choice, look))

            return redraw.part(state, draw)
        if not run.live:
            st.caption("This run was cancelled before any result.")
    redraw.part(state, lambda now: views.draw(now, choice, None))


def _look(state: url.State, run: Run, records: list[Record], first: str) -> Look:
    """The case and the baseline that are chosen, in a row above the result."""
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        case = answer.case_picker(state, list(tables.cases(records)), run, first)
        over = answer.compared_with(state, run, records)
    return answer.look(run, records, case, over)


def _layers(place: DeltaGenerator | None, choice: Choice, look: Look) -> None:
    """In ``place``, under the slider of layers, where the result on show has more of them than a run here
    would have."""
    here = {case.get("layers") for case in choice.cases}
    shown = {r.case.get("layers") for r in look.rows}
    if place and choice.cases != choice.whole and len(shown) == 1 and shown != here:
        where = md(device_text(look.run.device_name))
        place.caption(f"The result on show has {shown.pop()} layers (measured on {where}).")
    elif place:
        place.empty()


def result_alone(state: url.State) -> None:
    """A run that the URL opens while its config.json is not there or not confirmed: its results need no file.
    The settings of the URL wait with it."""
    state.keep_rest()
    run_id = matching.shown(state, "model", None, None, False, _COMPARED, "a comparison of a model")
    if run_id is None:
        st.caption(
            "No model yet: the settings wait for a config.json, or for you to confirm that of the link."
        )
        return
    run, records = run_data.read(run_id), run_data.records(run_id)
    answer.heading(run)
    if records and not run.live:
        case = answer.case_picker(state, list(tables.cases(records)), run)
        answer.headline(answer.look(run, records, case, answer.compared_with(state, run, records)))
    st.caption("Its views and settings need the config.json, which the form waits for.")


def able(run: Run) -> list[str]:
    """The execution modes of a run's model that can run on the chosen device."""
    model = str(run.spec.get("op", "")).removeprefix("model:")
    try:
        listed = models.modes(model, device.current())
    except ValueError:  # it is known where the run is from, or its config.json is elsewhere
        return []
    return [i.name for i in listed if i.reason is None]


def _recorded(choice: Choice, where: str | None, mistaken: bool) -> Found | None:
    """Nothing has been measured here yet: one sentence, one button, and the recorded case nearest to the
    settings, on the device ``where`` if any. ``mistaken``: a box of the form shows what is no setting."""
    matching.first(models.title(choice.model), "models", choice.spec, "execution modes")
    spec = {"op": choice.op, "cases": () if mistaken else choice.whole, "dtype": choice.dtype}
    asked = nearest.of_spec(spec, where)
    found = nearest.find(asked, recorded=True)
    if found is None:
        st.caption(
            f"No recorded run of {models.title(choice.model)} ships with this checkout. Parameters and "
            "accuracy need no run."
        )
        return None
    st.caption(nearest.caption(found, asked))
    return found
