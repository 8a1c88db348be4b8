"""One fusion scheme: its 16 bits, the layer cut accordingly, its translation, and the Python module it
becomes."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.fusion import graph
from fusescope.jobs import submit
from fusescope.search import encoding
from fusescope.search.scheme import codegen, layer
from fusescope.search.scheme.setting import Setting
from pages._ui.app import cached_chart, callbacks, url
from pages._ui.fusion import runs
from pages._ui.widgets import elements, html_table, style
from pages._ui.widgets.text import md, plural, sentence

START = "0001101010101010"
_CODE, _ATTENTION, _BITS = "fusion/code", "fusion/attention", "fusion/bits"
_VALID, _BAD = "fusion/valid", "fusion/bad"  # the last valid code; an invalid one typed since, and why
_NAMES = [f"{o.number} {o.name}" for o in layer.OPERATORS]


def draw(state: url.State, setting: Setting) -> None:
    """The bits on top, the layer, its meaning and times, and the code below."""
    code = _bits(state)
    canonical = encoding.canonical(code)
    segments = codegen.plan(code, setting)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=460):
            _graph(segments, canonical, setting)
        with st.container(width=310):
            _meaning(code, canonical)
            _results(setting, canonical)
    _module(code, canonical, setting)


def _graph(segments, canonical: str, setting: Setting) -> None:
    look = (canonical, setting, style.theme())
    parts = [graph.Part(list(s.operators), s.names, s.how, *_cost(s.operators, setting)) for s in segments]
    fig = cached_chart.once(
        ("layer", *look),
        lambda: graph.draw(parts, layer.edges(), 9, _title(segments), _where(setting), look[2]),
    )
    elements.chart(fig, f"layer-{canonical}", lambda: _table(segments, setting))
    colours = graph.legend(look[2]).items()
    dots = [f"<span class='fs-dot' style='background:{c}'></span>{label}" for label, c in colours]
    st.html(f"<div class='fs-small'>{' &nbsp; '.join(dots)}<br>MiB: minimum memory traffic of a kernel</div>")


def code_of(state: url.State) -> str:
    """The code of the page, as 16 bits; an invalid one in the URL is reported and ignored."""
    if state.opened or _VALID not in st.session_state:
        text = state.query.get("code", START)
        try:
            put(encoding.bits(text))
        except (ValueError, TypeError) as error:
            state.ignored("code", error)
            put(START)
    return st.session_state[_VALID]


def _bits(state: url.State) -> str:
    """The code, typed or toggled bit by bit; the last change wins."""
    code = code_of(state)
    bad = st.session_state.get(_BAD)
    st.session_state[_CODE] = bad[0] if bad else code
    st.session_state[_ATTENTION] = code[0] == "1"
    st.session_state[_BITS] = [name for name, bit in zip(_NAMES, code[1:], strict=True) if bit == "1"]
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    left.text_input(
        "code", key=_CODE, on_change=_typed, help=f"{encoding.RULE[0].upper()}{encoding.RULE[1:]}"
    )
    right.toggle(
        "bit 0: hand-written attention",
        key=_ATTENTION,
        on_change=_toggled,
        help="For operators 2 to 7, head split to head merge",
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
        hand = "GEMMs, the hand-written attention, bias + GELU, bias + residual + LayerNorm"
        for label, other, help_text in (
            ("Complement", encoding.complement(code), "The same scheme with bits 1 to 15 inverted"),
            ("Canonical form", encoding.canonical(code), "The code under which a scheme is stored"),
            ("Fully unfused", encoding.encode(False, range(14)), None),
            ("Fully fused", encoding.encode(False, ()), None),
            ("Hand-fused", encoding.encode(True, (1, 7, 8, 10, 12, 13)), hand),
        ):
            st.button(label, on_click=put, args=(other,), type="tertiary", help=help_text)
    return code


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
    put(
        ("1" if st.session_state[_ATTENTION] else "0")
        + "".join("1" if name in marked else "0" for name in _NAMES)
    )


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


def _results(setting: Setting, canonical: str) -> None:
    """Times of this scheme, and the button that measures it."""
    st.markdown("**Measured**")
    known = runs.records_of(setting, canonical)
    for run, r in known[:3]:
        if r.status != "ok":
            st.markdown(f"✗ {r.status}: {md(r.reason)}")
            continue
        gain = f", {numbers.ratio(r.speedup.median)} over unfused: {r.speedup.verdict}" if r.speedup else ""
        st.markdown(
            f"**{numbers.time(r.ms)}**{gain} · {md(run.device_name)} · [run]({url.link('runs', run=run.id)})"
        )
    if not known:
        st.caption("Not in this setting yet.")
    st.button(
        "Check and time",
        key="fusion/measure",
        on_click=callbacks.careful(_measure),
        args=(setting, canonical),
        help="Check against the unfused layer in float64, then time it with the baselines",
    )


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
        st.code(text, language="python", height=420)


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
