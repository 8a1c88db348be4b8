"""Which layer the page is about: settings of this machine, or those of recorded sweeps on another device."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from fusescope.core.records import DTYPES, Run
from fusescope.core.schema import Parameter
from fusescope.search.scheme.setting import COMPILERS, PARAMETERS, Setting
from pages._ui.app import device, redraw, url
from pages._ui.forms import fields, linked, mask_picker, parameters
from pages._ui.fusion import runs
from pages._ui.fusion.runs import Layer
from pages._ui.widgets.text import device_text, md, sentence

HERE = "here"
_PAGE, _SCOPE, _ON = "fusion", "layer", "fusion/on"


def form(state: url.State) -> Layer | None:
    """Where it was measured, the layer, its mask, dtype and compiler; None (with a sentence) while they are
    inconsistent."""
    state.scopes.add(_SCOPE)
    on = _place(state)
    usual = _usual(on)
    st.markdown("**The layer**")
    place: list = []
    try:
        values = parameters.draw(state, _SCOPE, _parameters(usual), None, place.append)
        setting = Setting(device=usual.device, **{name: value[0] for name, value in values.items()})
        fields.refuse(state)
        linked.refuse(state)
    except (ValueError, TypeError, OSError) as error:
        st.error(md(sentence(error)))
        return None
    if place:
        with place[0]:
            mask_picker.thumbnail(setting.mask, setting.seq, setting.seq)
    of = runs.model_text(setting)
    st.caption(md(f"A layer of {of}: {setting}. Only times of the same setting are compared."))
    return Layer(setting, _names()[on], on == HERE)


def put(run: Run) -> None:
    """Show the layer that a run measured (a callback)."""
    setting = runs.setting_of(run)
    if setting is None:
        return
    redraw.whole_page_next()
    st.session_state[_ON] = run.device_name if run.recorded else HERE
    if not run.recorded and setting.device in device.devices():
        st.session_state["device"] = setting.device
    _put(setting)


def query_of(run: Run) -> dict[str, str]:
    """The layer of a run as parameters of the page's address."""
    setting = runs.setting_of(run)
    given = {k: str(v) for k, v in setting.spec().items() if k != "device"} if setting else {}
    return given | {"on": run.device_name if run.recorded else HERE}


def _place(state: url.State) -> str:
    names = _names()
    key = fields.seeded(state, "on", list(names), _usual_place(names))
    st.selectbox(
        "measured on", list(names), key=key, format_func=lambda n: _label(n, names), on_change=_moved
    )
    on = st.session_state[key]
    state.keep("on", on, HERE if len(names) == 1 else None)
    return on


def _names() -> dict[str, str]:
    """What can be chosen → the device's name: this machine, then devices with a recorded sweep."""
    here = str(device.facts(device.current()).get("device_name") or device.current())
    return {HERE: here} | {r.device_name: r.device_name for r in runs.listed() if r.recorded}


def _label(on: str, names: dict[str, str]) -> str:
    return f"{device_text(names[on])} ({'this machine' if on == HERE else 'recorded'})"


def _usual_place(names: dict[str, str]) -> str:
    """This machine once it has a sweep of its own, until then the recorded ones."""
    own = runs.largest([r for r in runs.listed_of(("traverse",)) if not r.recorded])
    return HERE if own or len(names) == 1 else list(names)[1]


def _usual(on: str) -> Setting:
    """The layer to begin with: the largest that has a recorded sweep, without a mask where there is one."""
    if on == HERE:
        gpu = device.is_gpu()
        return Setting(
            1,
            128,
            dtype="float16" if gpu else DTYPES[0],
            device=device.current(),
            compiler="inductor" if gpu else "none",
        )
    sweeps = [r for r in runs.listed() if r.recorded and r.device_name == on]
    known = [s for r in sweeps if r.kind == "traverse" and (s := runs.setting_of(r))]
    known = known or [s for r in sweeps if (s := runs.setting_of(r))]
    return max(known, key=lambda s: (s.batch * s.seq, not s.masked))


def _parameters(usual: Setting) -> tuple[Parameter, ...]:
    """The widgets of a Setting, which begin with this one."""
    choices = {"dtype": DTYPES, "compiler": tuple(COMPILERS)[::-1]}
    if usual.cuda:
        choices = {"dtype": ("float16", "bfloat16", "float32"), "compiler": tuple(COMPILERS)}
    first = {name: getattr(usual, name) for name in ("batch", "seq", "heads", "head_dim", *choices)}
    first["mask"] = usual.mask
    return tuple(
        replace(p, default=first.get(p.name, p.default), choices=choices.get(p.name, p.choices))
        for p in PARAMETERS
        if p.name != "device"
    )


def _moved() -> None:
    """Another place: its usual layer."""
    _put(_usual(st.session_state[_ON]))


def _put(setting: Setting) -> None:
    for name in ("batch", "seq", "heads", "head_dim", "dtype", "compiler"):
        st.session_state[f"{_PAGE}/{_SCOPE}/{name}"] = getattr(setting, name)
    derived = setting.ffn == 4 * setting.heads * setting.head_dim
    st.session_state[f"{_PAGE}/{_SCOPE}/ffn"] = None if derived else setting.ffn
    mask_picker.put(_PAGE, "mask", setting.mask)
