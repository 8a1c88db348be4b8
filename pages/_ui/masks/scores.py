"""The score section of the Masks page: a model, an input and the job that looks at its probabilities;
scores_report draws what it found."""

from __future__ import annotations

from typing import Any

import streamlit as st

from fusescope import models
from fusescope.analysis.scores import TILES
from fusescope.charts import numbers, template
from fusescope.core.records import DTYPES, Run
from fusescope.jobs import submit
from fusescope.store import library, tables
from pages._ui.answer import answer
from pages._ui.app import callbacks, device, jobs, url
from pages._ui.masks import scores_report
from pages._ui.widgets.text import md

_INPUTS = {"random": "random tokens", "text": "a text", "tokens": "a file of token ids"}
_MASKS = {"own": "the model's own", "above": "the mask above"}
_NAMES = ("bert-base", "bert-small")


def draw(state: url.State, look) -> None:
    """Controls, Run, and the newest report (or the URL's); ``look``: what the page's other views draw
    from."""
    spec, problem = _form(state, look)
    left, right = st.columns([2, 3], vertical_alignment="center")
    with left:
        st.button(
            "Look at scores",
            type="primary",
            key="masks/scores_run",
            disabled=spec is None,
            width="stretch",
            on_click=callbacks.careful(_submit),
            args=(spec,),
        )
    with right:
        if problem:
            st.error(md(problem))
        else:
            case = spec["case"]
            count = case["layers"] * case["heads"] * case["batch"] * case["seq"] ** 2
            st.caption(
                f"{numbers.three(count / 1e6)} million probabilities of {case['layers']} layers on {device.facts(spec['device']).get('device_name') or spec['device']}"
            )
    found = of_model(st.session_state[f"{state.page}/s_model"])
    if not found:
        st.markdown(
            "No input was looked at with this model here yet: per layer and head, how many probabilities are next to nothing, which tiles "
            "could be skipped at a threshold, and what that costs."
        )
        return
    names = {r.id: r for r in found}
    key = state.seed("s_run", found[0].id)
    asked = st.session_state.pop("masks/scores_shown", None) or st.session_state[key]
    st.session_state[key] = asked if asked in names else found[0].id
    run_id = st.selectbox("report", list(names), key=key, format_func=lambda i: _words(names[i]))
    state.keep("s_run", run_id, found[0].id)
    run = names[run_id]
    if run.live:
        jobs.follow(run_id)
        return
    answer.heading(run)
    scores_report.draw(state, run, report(run_id))


def of_model(model: str) -> list[Run]:
    """Runs that looked at a model's scores, newest first, without failed ones (which left no report)."""
    listed, _ = library.runs(kind="scores", limit=60)
    return [r for r in listed if r.spec.get("model") == model and r.status in ("done", "queued", "running")]


@st.cache_data(max_entries=8, show_spinner=False)
def report(run_id: str) -> dict[str, Any]:
    """The report of a run that is done."""
    return tables.read(library.find(run_id), "scores")


def _form(state: url.State, look) -> tuple[dict[str, Any] | None, str]:
    """(the job's complete spec or None, what is wrong with the choice)."""
    names = models.names()
    usual = next((n for n in _NAMES if n in names), names[0])
    a, b, c = st.columns(3)
    model = a.selectbox(
        "model", names, key=state.seed("s_model", usual, url.one_of(names)), format_func=models.title
    )
    seq = b.number_input(
        "tokens at most",
        1,
        4096,
        key=state.seed("s_seq", 128, url.whole(1, 4096)),
        disabled=models.config(model).patch > 0,
    )
    dtype = c.selectbox("dtype", DTYPES, key=state.seed("s_dtype", "float32", url.one_of(DTYPES)))
    a, b, c = st.columns(3)
    tile = a.selectbox(
        "side of a tile",
        TILES,
        key=state.seed("s_tile", 16, lambda t: int(url.one_of([str(s) for s in TILES])(t))),
    )
    kind = b.selectbox(
        "input",
        list(_INPUTS),
        key=state.seed("s_input", "random", url.one_of(list(_INPUTS))),
        format_func=_INPUTS.get,
    )
    mask = c.selectbox(
        "mask",
        list(_MASKS),
        key=state.seed("s_mask", "own", url.one_of(list(_MASKS))),
        format_func=_MASKS.get,
    )
    checkpoint = st.text_input(
        "checkpoint folder", key=state.seed("s_checkpoint", ""), placeholder="random weights"
    ).strip()
    for name, value, default in (
        ("s_model", model, usual),
        ("s_seq", seq, 128),
        ("s_dtype", dtype, "float32"),
        ("s_tile", tile, 16),
        ("s_input", kind, "random"),
        ("s_mask", mask, "own"),
        ("s_checkpoint", checkpoint, ""),
    ):
        state.keep(name, value, default)
    given: Any = "random"
    lengths = ""
    if kind == "random" and not models.config(model).patch:
        lengths = st.text_input(
            "lengths",
            key=state.seed("s_lengths", ""),
            placeholder="one sequence; or 128+77+40, tokens of each of a batch",
            help="What padding them to the longest wastes is said, too",
        ).strip()
        state.keep("s_lengths", lengths)
    if kind == "text":
        text = st.text_area("text", key=state.seed("s_text", ""), height=90)
        folder = st.text_input(
            "tokenizer's folder", key=state.seed("s_tokenizer", ""), placeholder="/path/to/tokenizer"
        ).strip()
        state.keep("s_text", text if len(text) <= 500 else "")
        state.keep("s_tokenizer", folder)
        given = {"text": text, "tokenizer": folder}
    elif kind == "tokens":
        file = st.text_input(
            "file of token ids (.npy, or a sequence a line)",
            key=state.seed("s_file", ""),
            placeholder="/path/to/tokens.npy",
        ).strip()
        state.keep("s_file", file)
        given = {"tokens": file}
    case: dict[str, Any] = {} if models.config(model).patch else {"seq": seq}
    if mask == "above":
        case["mask"] = look.texts[0]
    if lengths:
        case |= {"lengths": lengths, "batch": lengths.count("+") + 1}
    spec = {
        "model": model,
        "case": case,
        "dtype": dtype,
        "device": device.current(),
        "checkpoint": checkpoint or None,
        "input": given,
        "tile": tile,
    }
    if kind != "random" and not all(given.values()):
        return None, {
            "text": "Give a text and the folder of its tokenizer.",
            "tokens": "Give the path of a file of token ids.",
        }[kind]
    try:
        return submit.validate("scores", spec), ""
    except (ValueError, TypeError) as error:
        return None, str(error)


def _submit(spec: dict) -> None:
    st.session_state["masks/scores_shown"] = submit.submit("scores", spec)


def _words(run: Run) -> str:
    spec = run.spec
    what = spec.get("input")
    words = what if isinstance(what, str) else "text" if "text" in (what or {}) else "token file"
    case = spec.get("case") or {}
    state = "" if run.status == "done" else f" ({run.status})"
    return f"{template.date(run.finished or run.created)} · {words}, seq {case.get('seq')}, mask {case.get('mask')}, {spec.get('dtype')}, tile {spec.get('tile')}{state}"
