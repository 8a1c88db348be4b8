"""The Scores view of the Masks page: a model, an input and the job that analyses its attention probabilities;
scores_report draws the result."""

from __future__ import annotations

from typing import Any

import streamlit as st

from fusescope import models
from fusescope.analysis.scores import TILES
from fusescope.charts import captions, numbers
from fusescope.core.records import DTYPES, Run
from fusescope.core.schema.cases import written
from fusescope.jobs import submit
from fusescope.store import library, tables
from pages._ui.answer import answer
from pages._ui.app import device, jobs, run_data, url
from pages._ui.forms import fields, linked
from pages._ui.masks import scores_report
from pages._ui.widgets.text import md

_INPUTS = {"random": "random tokens", "text": "text", "tokens": "file of token ids"}
_MASKS = {"own": "the model's own", "above": "the mask above"}
_NAMES = ("bert-base", "bert-small")


def draw(state: url.State, look) -> None:
    """Controls, the button, and the newest report (or the URL's); ``look``: as for the other views."""
    spec, problem = _form(state, look)
    left, right = st.columns([2, 3], vertical_alignment="center")
    with left:
        go = {"type": "primary", "disabled": spec is None, "key": "masks/scores_run", "width": "stretch"}
        if st.button("Analyse attention scores", **go) and spec:
            st.session_state["masks/scores_shown"] = submit.submit("scores", spec)
    with right:
        if problem:
            st.error(md(problem))
        else:
            case = spec["case"]
            count = case["layers"] * case["heads"] * case["batch"] * case["seq"] ** 2
            st.caption(
                f"{numbers.three(count / 1e6)} million probabilities in {case['layers']} layers on "
                f"{device.facts(spec['device']).get('device_name') or spec['device']}"
            )
    found = run_data.of_model("scores", st.session_state[f"{state.page}/s_model"])
    if not found:
        st.markdown(
            "Not analysed yet. Per layer and head: how many probabilities are near zero, which tiles "
            "could be skipped at a "
            "threshold, and the error that causes."
        )
        return
    run = fields.report(state, "s_run", found, _line, "masks/scores_shown")
    if run.live:
        jobs.follow(run.id)
        return
    answer.heading(run)
    scores_report.draw(state, run, report(run.id))


@st.cache_data(max_entries=8, show_spinner=False)
def report(run_id: str) -> dict[str, Any]:
    """The report of a run that is done."""
    return tables.read(library.find(run_id), "scores")


def _form(state: url.State, look) -> tuple[dict[str, Any] | None, str]:
    """(the job's complete spec or None, what is wrong with the choice)."""
    names = models.names()
    usual = next((n for n in _NAMES if n in names), names[0])
    a, b, c = st.columns(3)
    model = fields.pick(state, "s_model", "model", names, usual, box=a, format_func=models.title)
    patches = models.config(model).patch > 0
    seq = fields.whole(state, "s_seq", "max tokens", 1, 4096, 128, box=b, disabled=patches)
    dtype = fields.pick(state, "s_dtype", "dtype", DTYPES, "float32", box=c)
    a, b, c = st.columns(3)
    tile = fields.pick(state, "s_tile", "tile size", TILES, 16, box=a)
    kind = fields.pick(state, "s_input", "input", _INPUTS, box=b, format_func=_INPUTS.get)
    mask = fields.pick(state, "s_mask", "mask", _MASKS, box=c, format_func=_MASKS.get)
    checkpoint = fields.path(
        state,
        "s_checkpoint",
        "checkpoint folder",
        placeholder="/path/to/checkpoint; empty: random weights, no conclusion about a trained model",
        help="A folder with config.json and weights as transformers saves them",
    )
    given: Any = "random"
    lengths = ""
    if kind == "random" and not patches:
        lengths = fields.text(
            state,
            "s_lengths",
            "lengths",
            placeholder="one sequence, or tokens of each in a batch: 128+77+40",
            help="The report also says how much padding to the longest wastes",
        )
    if kind == "text":
        text = st.text_area("text", key=state.seed("s_text", ""), height=90)
        folder = fields.path(state, "s_tokenizer", "tokenizer folder", placeholder="/path/to/tokenizer")
        state.keep("s_text", text if len(text) <= 500 else "")
        given = {"text": text, "tokenizer": folder}
    elif kind == "tokens":
        label = "file of token ids (.npy, or one sequence per line)"
        given = {"tokens": fields.path(state, "s_file", label, placeholder="/path/to/tokens.npy")}
    case: dict[str, Any] = {} if patches else {"seq": seq}
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
        fields.refuse(state)
        linked.refuse(state)
        return submit.validate("scores", spec), ""
    except (ValueError, TypeError) as error:
        return None, str(error)


def _line(run: Run) -> str:
    spec = run.spec
    what = spec.get("input")
    source = what if isinstance(what, str) else "text" if "text" in (what or {}) else "token file"
    case = spec.get("case") or {}
    state = "" if run.status == "done" else f" ({run.status})"
    return (
        f"{captions.when(run)} · {source}, seq {written(case.get('seq'))}, mask {case.get('mask')}, "
        f"{spec.get('dtype')}, "
        f"tile {spec.get('tile')}{state}"
    )
