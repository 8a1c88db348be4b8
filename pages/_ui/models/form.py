"""The controls of the Models page: which model, how large, run in which execution modes, and what pressing
Run will cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fusescope import models
from fusescope.charts import numbers
from fusescope.core.records import DTYPES, BenchSpec
from fusescope.masks import counting
from pages._ui.answer import workers
from pages._ui.app import device, url
from pages._ui.forms import certainty, fields, implementations, linked, mask_picker, parameters, run_panel
from pages._ui.models import config_files
from pages._ui.widgets.text import md

_USUAL = ("eager", "sdpa", "sdpa-graph", "fusescope", "fused")
_OWN = ("lengths", "phase")  # drawn here, not by the common widgets
_SIZES = ("layers", "heads", "head_dim")
_LENGTHS = {"fixed": "equal", "uniform": "unequal", "list": "listed"}
_BOTH = "both"  # prefill and decode


@dataclass
class Choice:
    """What is chosen: a model, its cases (complete, one for each swept value), and the spec of the
    comparison; problems say why not. whole: the cases as the form has them, before layers that this device
    does not hold are left out. layers: the place under their slider."""

    model: str
    dtype: str
    checkpoint: str | None = None
    modes: list[str] = field(default_factory=list)
    cases: list[dict[str, Any]] = field(default_factory=list)
    whole: list[dict[str, Any]] = field(default_factory=list)
    spec: dict[str, Any] | None = None
    pressed: bool = False
    layers: DeltaGenerator | None = None

    @property
    def op(self) -> str:
        return models.op(self.model)


def draw(state: url.State) -> Choice | None:
    """Draw the form; a choice that is not valid has no spec and its sentence stands under Run. None while a
    model by its config.json has no file."""
    problems: list[str] = []
    names = [*models.names(), config_files.OTHER]
    default = "bert-base" if "bert-base" in names else names[0]
    wanted = state.query.get("model", default)
    file = state.query.get("config_file", "") if wanted == config_files.OTHER else ""
    state.scopes.add(file or (wanted if wanted in names else default))
    top = st.container()
    name = fields.pick(state, "model", "model", names, default, format_func=config_files.title)
    if name == config_files.OTHER and (name := config_files.choose(state)) is None:
        return None
    modes: list[str] = []
    with run_panel.collect(problems):
        listed = models.modes(name, device.current())
        modes = implementations.choose(state, name, listed, "execution modes", _USUAL)
    baseline = implementations.baseline(state, name, modes)
    left, right = st.columns(2, gap="small", wrap=False)
    with left:
        usual = "float16" if device.is_gpu() else "float32"
        dtype = fields.pick(state, "dtype", "dtype", DTYPES, usual, name)
    choice = Choice(name, dtype, modes=modes)
    with right:
        cold = "Cold: the last-level cache is flushed between samples"
        cache = fields.pick(state, "cache", "cache", ("warm", "cold", "both"), help=cold)
    certain = certainty.draw(state)
    with run_panel.collect(problems):
        workers.choose(state)
    choice.checkpoint = None if models.is_path(name) else _checkpoint(state, name)
    with run_panel.collect(problems):
        choice.cases = _cases(state, choice)
    with run_panel.collect(problems):
        choice.whole = choice.cases
        choice.cases = [_fitted(choice, case) for case in choice.cases]
    with run_panel.collect(problems):
        for case in choice.cases:
            models.check_memory(name, case, dtype, device.current(), choice.checkpoint)
    for refuse in (fields.refuse, linked.refuse):
        with run_panel.collect(problems):
            refuse(state)
    cost = ""
    if choice.cases and choice.modes and not problems:
        spec = BenchSpec(
            choice.op,
            tuple(choice.modes),
            tuple(choice.cases),
            baseline,
            dtype,
            device.current(),
            cache,
            **certain,
        )
        choice.spec = spec.to_json() | {"checkpoint": choice.checkpoint, "parts": True}
        cost = _cost(spec, choice.whole[0])
    with top:
        choice.pressed = run_panel.draw("models/run", problems, cost)
    return choice


def _checkpoint(state: url.State, name: str) -> str | None:
    key = state.seed("checkpoint", "", scope=name)
    with st.expander("Checkpoint", expanded=bool(st.session_state[key])):
        help_text = "A local folder with config.json and *.safetensors"
        text = fields.path(state, "checkpoint", "folder", name, placeholder="random weights", help=help_text)
    return text or None


def _cases(state: url.State, choice: Choice) -> list[dict[str, Any]]:
    """Complete cases; ValueError in one sentence. With a checkpoint its sizes are its own."""
    name, checkpoint = choice.model, choice.checkpoint
    known = models.parameters(name)
    phase = next((p for p in known if p.name == "phase"), None)
    hidden = set(_OWN) | set(_SIZES if checkpoint else ())
    if models.is_path(name):  # the file says the rest, and an image has one size
        hidden |= {"heads", "head_dim", "config"} | ({"seq"} if models.config(name).patch else set())
        hidden |= {"mask"} if models.family(name).OWN_MASKS else set()
    shown = tuple(p for p in known if p.name not in hidden)
    picked: dict[str, Any] = {}
    phases: tuple[str | None, ...] = (None,)
    if phase:
        choices = (*phase.choices, _BOTH)
        chosen = fields.segments(state, "phase", "phase", choices, phase.default, scope=name, help=phase.help)
        phases = ("prefill", "decode") if chosen == _BOTH else (chosen,)
        shown = tuple(p for p in shown if p.name != "new" or "generate" in phases)
    swept = parameters.sweep(state, name, shown)
    place: list = []

    def below(parameter: str) -> None:
        if parameter == "layers":
            choice.layers = st.container(gap="small")

    values = parameters.draw(state, name, shown, swept, place.append, below)
    batch = values["batch"]
    if "seq" in values:
        picked["lengths"] = _lengths(state, name, batch[0] if len(batch) == 1 else None)
    cases = [
        models.validate(name, case | picked | ({"phase": p} if p else {}), checkpoint)
        for p in phases
        for case in run_panel.swept(values)
    ]
    if place and cases:
        with place[0]:
            _picture(cases)
    return cases


def _picture(cases: list[dict[str, Any]]) -> None:
    """The mask over the prompt; a step of decoding has one query, and no such square."""
    prompts = [c for c in cases if c.get("phase") != "decode"]
    if prompts:
        seq = int(prompts[-1]["seq"])
        mask_picker.thumbnail(str(prompts[-1]["mask"]), seq, seq)
    elif cases[-1]["mask"] == "causal":
        st.caption(f"A decode step has one query; it attends to all {cases[-1]['seq']:,} keys and its own.")


def _fitted(choice: Choice, case: dict[str, Any]) -> dict[str, Any]:
    """The case, with fewer layers where the device does not hold all, which is said under their slider."""
    whole = models.config(choice.model, {**case, "layers": None}, choice.checkpoint).layers
    fewer = models.reduced(choice.model, case, choice.dtype, device.current(), choice.checkpoint)
    if fewer is None or case["layers"] != whole:
        return case
    name = device.facts(device.current()).get("device_name") or device.current()
    (choice.layers or st).info(md(f"Run here, on {name}: {fewer[1]}."))
    return fewer[0]


def _lengths(state: url.State, name: str, batch: int | None) -> str:
    """Tokens of each sequence: equal, evenly spread, or listed."""
    given = state.query.get("lengths", "fixed") if name in state.scopes else "fixed"
    form = given.partition(":")[0]
    kind_key = state.seed("lengths_kind", form if form in _LENGTHS else "list", scope=name)
    low_key = state.seed("lengths_low", 0.2, scope=name)
    seed_key = state.seed("lengths_seed", 0, scope=name)
    list_key = state.seed("lengths_list", given if form not in _LENGTHS else "", scope=name)
    if state.opened and form == "uniform":
        said = dict(piece.partition("=")[::2] for piece in given.partition(":")[2].split(","))
        try:
            st.session_state[low_key] = min(1.0, max(0.05, float(said.get("low", 0.2))))
            st.session_state[seed_key] = max(0, int(said.get("seed", 0)))
        except ValueError:
            state.ignored("lengths", "low must be a share of the sequence, seed a whole number")
    kind = st.segmented_control(
        "lengths",
        list(_LENGTHS),
        key=kind_key,
        format_func=_LENGTHS.get,
        required=True,
        help="Lengths of the sequences in a batch; the rest is padding, which some execution modes remove",
    )
    if kind == "uniform":
        low = st.slider(
            "shortest (share of the sequence)",
            0.05,
            1.0,
            step=0.05,
            key=low_key,
            help="Lengths are evenly spread from it to the whole sequence; 0.2 has a mean of 0.6",
        )
        seed = st.session_state[seed_key]
        settings = [f"low={low:g}"] * (low != 0.2) + [f"seed={seed}"] * (seed != 0)
        text = "uniform" + (":" + ",".join(settings) if settings else "")
    elif kind == "list":
        text = st.text_input(
            "one per sequence",
            key=list_key,
            placeholder="100+37" if batch is None else f"{batch} numbers joined by +",
        ).strip()
        if not text:
            raise ValueError("give a length for every sequence, such as 100+37")
    else:
        text = "fixed"
    state.keep("lengths", text, "fixed")
    return text


def _cost(spec: BenchSpec, whole: dict[str, Any]) -> str:
    if not all(map(counting.countable, spec.cases)):
        return run_panel.cost("model", spec, "execution mode")
    work = models.cost(models.named(spec.op), dict(spec.cases[0]), spec.dtype).flop_effective
    had, layers = whole.get("layers"), spec.cases[0].get("layers")
    of = "" if layers == had else f" with {layers} of {had} layers"
    more = f"; {numbers.three(work / 1e9)} GFLOP per call{of}"
    return run_panel.cost("model", spec, "execution mode", more)
