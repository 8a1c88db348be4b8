"""The answer to "What is fastest?": measured, or the nearest that was, or what the device allows at most."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from fusescope import masks, models, ops
from fusescope.analysis import hardware, roofline
from fusescope.analysis.compare.leaders import ranked
from fusescope.charts import captions, numbers, sentences, verdicts
from fusescope.core.records import Record
from fusescope.masks import counting
from fusescope.store import library
from fusescope.store.answers import Found, Question
from pages._ui.answer import nearest
from pages._ui.app import cached_chart, run_data
from pages._ui.home import links, stand_in
from pages._ui.home.question import ATTENTION, Asked, title
from pages._ui.widgets.text import device_text, md

_REFERENCES = ("sdpa", "eager")
"""What a user would run without this project: the first of these that has a valid time."""
_ABOVE = " for a copy: a call that only reads, or whose data stay in the L2 cache, may exceed them"
_EIGHT_BITS = "int8"  # fp8 has as many bytes


def draw(asked: Asked) -> None:
    """A line for the operator, or one each for the attention and for the whole model."""
    with st.container(gap="xsmall"):
        if asked.operator:
            _line(asked.operator, title(asked.about))
        if asked.attention:
            _line(asked.attention, "Attention" if asked.about == ATTENTION else "Attention alone")
        if asked.model:
            _line(asked.model, f"Whole {title(asked.about)}")


def _line(question: Question, name: str) -> None:
    found, name = nearest.find(question), name + _mask(question)
    answer = found and _answer(found)
    if answer and not found.differs:
        st.markdown(f"**{name}: {md(answer.text)}**{md(_share(found, answer.rows))}")
        if question.op.startswith("model:"):
            st.caption(_bound(question))
        _links(question, found, answer)
        return
    st.markdown(f"**{name}: not recorded.** {_bound(question)}")
    if answer:
        text = md(answer.text + _share(found, answer.rows))
        st.markdown(f"Nearest recorded ({nearest.differences(found)}): {text}")
    _links(question, found, answer)
    if other := stand_in.find(question, found):
        answer = _answer(other[1])
        st.markdown(stand_in.sentence(question, *other, answer.text))
        _links(*other, answer, measure=False)
    elif not answer:
        st.caption(stand_in.nothing(question))


@dataclass(frozen=True)
class _Answer:
    """What a measured case says. text: its fastest over ``reference``; where: device and date."""

    rows: list[Record]
    reference: str
    text: str
    where: str


def _answer(found: Found) -> _Answer:
    rows, run = _rows(found), run_data.read(found.run)
    baseline = str(run.spec.get("baseline") or rows[0].impl)
    reference = _reference(rows, baseline)
    text = sentences.against(rows, baseline, reference, _rate)
    return _Answer(rows, reference, text, f"{device_text(found.device_name)} · {captions.when(run)}")


def _mask(question: Question) -> str:
    """ " under sliding_window:left=128,right=128": a mask's name alone does not say how wide it is."""
    text = str(question.case.get("mask", "full"))
    if text in ("full", "causal"):
        return ""
    mask = masks.parse(text)
    whole = mask.resolved(int(question.case["seq"])) if "seq" in question.case else text
    return f" under {md(str(whole))}"


def _rows(found: Found) -> list[Record]:
    return [
        r for r in run_data.records(found.run) if dict(r.case) == dict(found.case) and r.dtype == found.dtype
    ]


def _reference(rows: list[Record], baseline: str) -> str:
    timed = {r.impl for r in rows if r.status == "ok"}
    return next((name for name in _REFERENCES if name in timed), baseline)


def _rate(record: Record) -> str:
    """ ", 167 tokens/s" of a step of decoding by a whole model; "" of anything else."""
    decodes = record.op.startswith("model:") and record.case.get("phase") == "decode"
    return f", {_per_second(record.ms, record.case['batch'])}" if decodes else ""


def _per_second(ms: float, batch: int) -> str:
    return f"{numbers.three(batch * 1e3 / ms)} tokens/s"


def _bound(question: Question) -> str:
    """What a call takes at least at the device's ceilings: minimum traffic and arithmetic. Measured ones are
    rates of copies and products: an implementation that only reads may be some percent below."""
    ceilings, source = _ceilings(question.device_name, question.dtype)
    if ceilings is None:
        where = md(device_text(str(question.device_name)))
        return f"No bound: the rates of {where} in {question.dtype} were not measured."
    if not counting.countable(question.case):
        return "No bound: counting this mask at this length takes minutes."
    try:
        flop, moved, peaks = cached_chart.once(("bound", repr(question)), lambda: _work(question))
    except ValueError as error:
        return f"It cannot be run: {md(str(error))}."
    least, batch = roofline.least_ms(flop / peaks, moved, ceilings), question.case.get("batch")
    eight = None
    if _takes_8_bits(question):  # by modes that read fewer bytes
        key = ("bound", "8 bits", repr(question))
        fewer = cached_chart.once(key, lambda: _work(question, _EIGHT_BITS))
        eight = roofline.least_ms(*fewer[:2], ceilings)
    times = {f" with {question.dtype} weights": least, " with 8-bit ones": eight}
    if eight is None or eight >= least:
        times = {"": least}
    rate = ""
    if question.case.get("phase") == "decode":
        rates = [f"{_per_second(ms, batch)}{weights}" for weights, ms in times.items()]
        rate = f"At batch {batch} at most {', '.join(rates)}. "
    bounds = ", ".join(f"{numbers.time(ms)}{weights}" for weights, ms in times.items())
    return (
        f"{rate}At these rates it takes at least {bounds}: {numbers.size(moved)} of "
        f"minimum traffic at {numbers.three(ceilings.bandwidth_gbps / 1e3)} TB/s, "
        f"{numbers.three(flop / 1e9)} GFLOP at {numbers.three(peaks * ceilings.tflops)} TFLOP/s ({source})."
    )


def _share(found: Found, rows: list[Record]) -> str:
    """ "; 94.1 % of the speed that the rates of the device allow" of an operator's fastest time, those of
    copies and products; "" where its case cannot be counted: too large, or a mask of a file that is gone."""
    question = Question(rows[0].op, found.case, found.dtype, found.device_name)
    first, ceilings = next(iter(ranked(rows)), None), _ceilings(found.device_name, found.dtype)[0]
    if first is None or ceilings is None or question.op.startswith("model:"):
        return ""
    try:
        if not counting.countable(found.case):
            return ""
        flop, moved, peaks = cached_chart.once(("bound", repr(question)), lambda: _work(question))
    except (ValueError, OSError):
        return ""
    least = roofline.least_ms(flop / peaks, moved, ceilings)
    share = least / verdicts.compared_time(first).median
    text = f"; {numbers.percent(share)} of the speed that the rates of the device allow"
    return text + _ABOVE * (share > 1)


def _takes_8_bits(question: Question) -> bool:
    """Whether the question is on a model that has modes with 8-bit weights."""
    if not question.op.startswith("model:"):
        return False
    found = models.modes(models.named(question.op), "cuda")
    return any(mode.name == f"fused-{_EIGHT_BITS}" and mode.reason is None for mode in found)


def _work(question: Question, quantised: str | None = None) -> tuple[float, float, float]:
    """(FLOP, minimum bytes, how many times the dtype's arithmetic peak it may reach) of one call; ValueError
    where there is no such case."""
    if question.op.startswith("model:"):
        name = models.named(question.op)
        cost = models.cost(name, models.validate(name, question.case), question.dtype, quantised)
    else:
        operator = ops.load(question.op)
        cost = operator.cost(operator.validate(dict(question.case)), question.dtype)
    return cost.flop_effective, cost.bytes, cost.peaks


def _ceilings(name: str | None, dtype: str | None) -> tuple[roofline.Ceiling | None, str]:
    """The device's measured ceilings, else those of its data sheet, and which they are."""
    return _ceilings_of(name, dtype, run_data.state())


@st.cache_data(max_entries=64, show_spinner=False)
def _ceilings_of(name: str | None, dtype: str | None, state: int) -> tuple[roofline.Ceiling | None, str]:
    for run in library.runs(kind="bench", limit=200)[0] + library.runs(kind="model", limit=200)[0]:
        if run.device_name == name:
            try:
                return roofline.ceiling(run.environment.get("ceilings") or {}, str(dtype)), "measured"
            except ValueError:
                continue
    peaks = hardware.peaks(name or "")
    rate = peaks and (peaks.tflops(str(dtype)) or peaks.tflops(str(dtype), "vector"))
    return (roofline.Ceiling(peaks.bandwidth_gbps, rate), "data sheet") if rate else (None, "")


def _links(question: Question, found: Found | None, answer: _Answer | None, measure: bool = True) -> None:
    """Where it was measured, a link to the comparison over the same implementation, and one to measure it on
    this machine."""
    page = links.page(question)
    with st.container(horizontal=True, gap="medium", vertical_alignment="center"):
        if answer:
            st.caption(f"Measured on {md(answer.where)}", width="content")
            query = links.answer(question, found, answer.reference)
            st.page_link(page, label="All implementations and intervals →", query_params=query)
        if measure:
            st.page_link(page, label="Measure it here →", query_params=links.form(question))
