"""One fusion scheme: its 16 bits, the layer cut accordingly, its translation, and the Python module it
becomes."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.fusion import graph
from fusescope.charts.numbers import plural
from fusescope.core.records import Run
from fusescope.jobs import submit
from fusescope.search import encoding
from fusescope.search.scheme import codegen, layer
from fusescope.search.scheme.setting import Setting
from pages._ui.app import cached_chart, url
from pages._ui.fusion import place, runs, verdict
from pages._ui.fusion.runs import Layer
from pages._ui.widgets import elements, html_table, style, told
from pages._ui.widgets.text import device_text, md, sentence

START = "0001101010101010"
_CODE, _ATTENTION, _BITS = "fusion/code", "fusion/attention", "fusion/bits"
_VALID, _BAD = "fusion/valid", "fusion/bad"  # the last valid code; an invalid one typed since, and why
_FASTEST = "fusion/fastest"  # of the last layer with a sweep
_NEAR = 3  # other layers that are offered
_NAMES = [f"{o.number} {o.name}" for o in layer.OPERATORS]


def draw(state: url.State, asked: Layer) -> None:
    """The answer, the layer as a picture whose operators are clicked together, what the scheme gains and why;
    its code and the Python module for those who want them."""
    code = code_of(state, asked)
    canonical = encoding.canonical(code)
    verdict.sentence(asked, canonical)
    _presets(asked)
    segments = codegen.plan(code, asked.setting)
    run = runs.sweep_of(asked)
    if run is None:
        _elsewhere(asked)
    with st.container(horizontal=True, gap="small"):
        with st.container(width=398):
            _graph(segments, canonical, asked.setting)
        with st.container(width=390):
            known = run and runs.fastest(run.id).get(canonical)
            if known:
                verdict.over(run, known[1])
            verdict.why(asked, canonical)
            _measured(asked, canonical)
    _code(code, canonical)
    _module(code, canonical, asked.setting)


def _elsewhere(asked: Layer) -> None:
    """Which layers were swept there, nearest first: their fastest scheme is a click away."""
    if not (found := runs.near(asked)):
        return
    st.caption(f"No sweep of this layer on {md(device_text(asked.device_name))}. Layers with one:")
    with st.container(horizontal=True, gap="small"):
        for run in found[:_NEAR]:
            fastest = next(iter(runs.fastest(run.id).items()), None)
            took = f": {numbers.time(fastest[1][0])}" if fastest else ""
            st.button(
                f"{md(_layer(runs.setting_of(run)))}{took}",
                key=f"fusion/near/{run.id}",
                on_click=_move,
                args=(run, fastest and fastest[0]),
                type="tertiary",
                help="The fastest measured scheme of that layer",
            )


def _layer(setting: Setting) -> str:
    """ "batch 8, seq 512, 12 × 64, bigbird": as a button has room for."""
    return runs.layer_text(setting).partition(":")[0]


def _move(run: Run, code: str | None) -> None:
    """Show the layer of a run and a scheme of it (a callback)."""
    place.put(run)
    if code:
        put(code)


def _graph(segments, canonical: str, setting: Setting) -> None:
    look = (canonical, setting, style.theme())
    parts = [graph.Part(list(s.operators), s.names, s.how, *_cost(s.operators, setting)) for s in segments]
    free = range(encoding.OPERATORS - 1)
    if encoding.attention(canonical):
        free = [i for i in free if i + 1 not in encoding.ATTENTION and i not in encoding.ATTENTION]
    fig = cached_chart.once(
        ("layer", *look),
        lambda: graph.draw(parts, layer.edges(), 9, _title(segments), _where(setting), look[2], tuple(free)),
    )
    elements.chart(fig, f"layer-{canonical}", lambda: _table(segments, setting), _cut)
    st.toggle(
        "Hand-written attention for operators 2 to 7",
        key=_ATTENTION,
        on_change=_toggled_attention,
        help="Head split to head merge as one kernel of ours; nothing else is fused with it",
    )
    colours = graph.legend(look[2]).items()
    dots = [f"<span class='fs-dot' style='background:{c}'></span>{label}" for label, c in colours]
    st.html(
        f"<div class='fs-small'>{' &nbsp; '.join(dots)}<br>Click + to fuse two operators, − to cut between "
        "them. MiB: minimum traffic of a kernel.</div>"
    )


def code_of(state: url.State, asked: Layer | None) -> str:
    """The code of the page, as 16 bits: at first the fastest scheme measured of the layer, for each layer its
    own until another scheme is chosen; an invalid one in the URL is reported and ignored."""
    fastest = _fastest(asked)
    if state.opened or _VALID not in st.session_state:
        given = state.query.get("code")
        try:
            put(encoding.bits(given or fastest or START))
        except (ValueError, TypeError) as error:
            state.ignored("code", error)
            put(START)
    elif fastest and st.session_state[_VALID] == st.session_state.get(_FASTEST):
        put(fastest)
    if fastest:
        st.session_state[_FASTEST] = fastest
    code = st.session_state[_VALID]
    bad = st.session_state.get(_BAD)
    told.tell(_CODE, bad[0] if bad else code)
    told.tell(_ATTENTION, code[0] == "1")
    told.tell(_BITS, [name for name, bit in zip(_NAMES, code[1:], strict=True) if bit == "1"])
    return code


def drawn() -> str:
    """The code that ``code_of`` gave for this page."""
    return st.session_state[_VALID]


def _fastest(asked: Layer | None) -> str | None:
    run = runs.sweep_of(asked) if asked else None
    return next(iter(runs.fastest(run.id)), None) if run else None


def _presets(asked: Layer) -> None:
    best = _fastest(asked)
    hand = "GEMMs, the hand-written attention, bias + GELU, bias + residual + LayerNorm"
    with st.container(horizontal=True, gap="small"):
        for label, other, help_text in (
            ("Fastest measured", best, None),
            ("Fully unfused", encoding.encode(False, range(14)), None),
            ("Fully fused", encoding.encode(False, ()), None),
            ("Hand-fused", encoding.encode(True, (1, 7, 8, 10, 12, 13)), hand),
        ):
            if other:
                st.button(label, on_click=put, args=(other,), type="tertiary", help=help_text)


def _code(code: str, canonical: str) -> None:
    """The code, typed or toggled bit by bit; the last change wins."""
    bad = st.session_state.get(_BAD)
    with st.expander(f"Code: {code}", expanded=bool(bad), key="fusion/code-fold"):
        st.text_input(
            "code", key=_CODE, on_change=_typed, help=f"{encoding.RULE[0].upper()}{encoding.RULE[1:]}"
        )
        if bad:
            st.error(md(bad[1]))
        st.pills(
            "Adjacent operators with the same colour are fused; click to toggle.",
            _NAMES,
            selection_mode="multi",
            key=_BITS,
            on_change=_toggled,
        )
        with st.container(horizontal=True, gap="small"):
            for label, other, help_text in (
                ("Complement", encoding.complement(code), "The same scheme with bits 1 to 15 inverted"),
                ("Canonical form", canonical, "The code under which a scheme is stored"),
            ):
                st.button(label, on_click=put, args=(other,), type="tertiary", help=help_text)
        _meaning(code, canonical)


def put(code: str) -> None:
    """Show this code (a callback)."""
    st.session_state[_VALID] = code
    st.session_state[_BAD] = None


def _typed() -> None:
    text = st.session_state[_CODE].strip()
    try:
        put(encoding.bits(text))
    except (ValueError, TypeError) as error:
        st.session_state[_BAD] = (text, f"{sentence(error)}. Showing the previous scheme.")


def _toggled() -> None:
    marked = set(st.session_state[_BITS])
    put(st.session_state[_VALID][0] + "".join("1" if name in marked else "0" for name in _NAMES))


def _toggled_attention() -> None:
    put(("1" if st.session_state[_ATTENTION] else "0") + st.session_state[_VALID][1:])


def _cut(after: str) -> None:
    put(switched(st.session_state[_VALID], int(after)))


def switched(code: str, after: int) -> str:
    """The scheme cut after that operator where it was fused with the next one, and fused where it was cut."""
    return encoding.encode(encoding.attention(code), set(encoding.boundaries(code)) ^ {after})


def _meaning(code: str, canonical: str) -> None:
    st.markdown(
        "**translate**",
        help=(
            "Value, bit 0, the number of runs of two or more equal bits in positions 1 to 15, start and "
            "end of each"
        ),
    )
    st.code(encoding.translate(code), language=None)
    rows = [
        ("value", f"{encoding.value(code)}"),
        ("canonical form", f"{canonical} = {encoding.value(canonical)}"),
        ("complement", f"{encoding.complement(code)} = {encoding.value(encoding.complement(code))}"),
        ("cut after operators", ", ".join(map(str, encoding.boundaries(code))) or "none"),
    ]
    html_table.facts(rows)
    if encoding.attention(code):
        st.caption(
            "The hand-written attention is operators 2 to 7 whatever their bits; nothing is fused with it."
        )


def _measured(asked: Layer, canonical: str) -> None:
    """Earlier measurements of this scheme on this machine, and the button that measures it."""
    if not asked.here:
        st.caption("Recorded times. To measure a scheme yourself, choose this machine under “measured on”.")
        return
    for run, r in runs.records_of(asked, canonical)[:3]:
        if r.status != "ok":
            st.markdown(f"✗ {r.status}: {md(r.reason)}")
            continue
        gain = f", {numbers.ratio(r.speedup.median)} over unfused: {r.speedup.words}" if r.speedup else ""
        st.markdown(
            f"**{numbers.time(r.ms)}**{gain} · {md(run.device_name)} · [run]({url.link('runs', run=run.id)})"
        )
    if st.button(
        "Check and time",
        key="fusion/measure",
        help="Check against the unfused layer in float64, then time it with the baselines",
    ):
        _measure(asked.setting, canonical)


def _measure(setting: Setting, canonical: str) -> None:
    value = encoding.value(canonical)
    submit.submit(
        "traverse", setting.spec() | {"ranges": [[value, value]], "budget_s": 0.2, "segments": False}
    )


def _module(code: str, canonical: str, setting: Setting) -> None:
    text = cached_chart.once(("module", canonical, setting), lambda: codegen.generate(code, setting))
    with st.expander("The Python module", expanded=False):
        st.download_button(
            "Download",
            data=text,
            file_name=f"scheme_{canonical}.py",
            mime="text/x-python",
            on_click="ignore",
            key="fusion/module",
            help="Standalone: python FILE checks it against the unfused layer and times it",
        )
        elements.listing(text, "python", 420)


def _cost(operators: range, setting: Setting) -> tuple[float, float]:
    cost = layer.cost(operators, setting.sizes(), setting.dtype)
    return cost.flop_effective, cost.bytes_read + cost.bytes_written


def _table(segments, setting: Setting) -> pd.DataFrame:
    rows = [(s.span, s.how, ", ".join(s.names), *_cost(s.operators, setting)) for s in segments]
    return pd.DataFrame(rows, columns=["operators", "made by", "names", "flop", "bytes"])


def _title(segments) -> str:
    count = len(segments)
    return f"{plural(count, 'kernel')}, {sum(len(s.operators) > 1 for s in segments)} of them fused"


def _where(setting: Setting) -> str:
    return f"{runs.layer_text(setting)}, {setting.dtype}"
