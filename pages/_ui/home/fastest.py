"""The answer to "What is fastest?": measured, or the nearest that was, or what the device allows at most."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from fusescope import masks, models
from fusescope.analysis.compare.leaders import ranked
from fusescope.charts import captions, numbers, sentences
from fusescope.core.records import Record
from fusescope.masks import counting
from fusescope.store.answers import Found, Question
from pages._ui.answer import nearest
from pages._ui.app import run_data
from pages._ui.home import links, stand_in
from pages._ui.home.question import ATTENTION, Asked, title
from pages._ui.limits import least, rates
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
        st.markdown(f"**{name}: {md(answer.text)}**{md(_share(answer.rows, found.device_name))}")
        if question.op.startswith("model:"):
            st.caption(_bound(question))
        _links(question, found, answer)
        return
    st.markdown(f"**{name}: not recorded.** {_bound(question)}")
    if answer:
        text = md(answer.text + _share(answer.rows, found.device_name))
        st.markdown(f"Nearest recorded ({nearest.differences(found)}): {text}")
    _links(question, found, answer)
    if other := stand_in.find(question, found):
        answer = _answer(other[1])
        text = answer.text + _share(answer.rows, other[1].device_name)
        st.markdown(stand_in.sentence(question, *other, text))
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
    sides = [f"{name}={question.case[name]}" for name in ("left", "right") if name in question.case]
    text = "sliding_window:" + ",".join(sides) if sides else str(question.case.get("mask", "full"))
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
    """What a call takes at least at the device's rates: minimum traffic and arithmetic. Measured ones are
    rates of copies and products: an implementation that only reads may be some percent below."""
    found = rates.of(question.device_name, question.dtype)
    if found is None:
        where = md(device_text(str(question.device_name)))
        return f"No bound: the rates of {where} in {question.dtype} were not measured."
    if not counting.countable(question.case):
        return "No bound: counting this mask at this length takes minutes."
    about = question.op, question.case, str(question.dtype), found
    try:
        whole = least.of(*about)
    except ValueError as error:
        return f"It cannot be run: {md(str(error))}."
    times = {"": whole.ms}
    if _takes_8_bits(question):  # by modes that read fewer bytes
        eight = least.of(*about, _EIGHT_BITS).ms
        if eight < whole.ms:
            times = {f" with {question.dtype} weights": whole.ms, " with 8-bit ones": eight}
    rate, batch = "", question.case.get("batch")
    if question.case.get("phase") == "decode":
        each = [f"{_per_second(ms, batch)}{weights}" for weights, ms in times.items()]
        rate = f"At batch {batch} at most {', '.join(each)}. "
    bounds = ", ".join(f"{numbers.time(ms)}{weights}" for weights, ms in times.items())
    return f"{rate}At these rates it takes at least {bounds}: {_sums(whole)}."


def _sums(of: least.Least) -> str:
    """ "192 MiB of minimum traffic at 4.25 TB/s, 12.2 GFLOP at 754 TFLOP/s (measured)"."""
    at, same = of.rates, of.rates.memory_from == of.rates.matrix_from
    memory = f"{numbers.size(of.moved)} of minimum traffic at "
    memory += f"{numbers.three(at.ceiling.bandwidth_gbps / 1e3)} TB/s" + f" ({at.memory_from})" * (not same)
    matrix = f"{numbers.three(of.flop / 1e9)} GFLOP at {numbers.three(of.peaks * at.ceiling.tflops)} TFLOP/s"
    return f"{memory}, {matrix} ({at.matrix_from})"


def _share(rows: list[Record], device_name: str) -> str:
    """ "; 94.1 % of the speed that the rates of the device allow" of the fastest time, those of copies and
    products; of a model with its bound, and also of the fastest mode without quantisation; "" where its case
    cannot be counted (``least.share``)."""
    of_model = rows[0].op.startswith("model:")
    first = next(iter(ranked(rows)), None)
    found = first and least.share(first, device_name)
    if not found:
        return ""
    text = f"; {numbers.percent(found.share)} of the speed that the rates of the device allow"
    if not of_model:
        return text + _ABOVE * (found.share > 1)
    text += f" (at least {numbers.time(found.least.ms)})"
    whole = next((r for r in ranked(rows) if not sentences.quantised(r)), first)
    if whole is not first and (other := least.share(whole, device_name)):
        text += f", without quantisation {numbers.percent(other.share)} "
        text += f"(at least {numbers.time(other.least.ms)})"
    return text


def _takes_8_bits(question: Question) -> bool:
    """Whether the question is on a model that has modes with 8-bit weights."""
    if not question.op.startswith("model:"):
        return False
    found = models.modes(models.named(question.op), "cuda")
    return any(mode.name == f"fused-{_EIGHT_BITS}" and mode.reason is None for mode in found)


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
