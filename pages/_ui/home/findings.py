"""The doctor's findings: a verdict in a sentence, and each finding with the exact fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import streamlit as st

from fusescope.core import doctor

_SIGNS = {"ok": "✓", "warn": "!", "fail": "✗"}


@st.cache_data(ttl=20, show_spinner=False)
def examined() -> list[dict]:
    """What the doctor says of this machine, as plain values."""
    return [{"check": f.check, "status": f.status, "says": f.says, "fix": f.fix} for f in doctor.examine()]


def verdict(findings: Iterable[Mapping]) -> None:
    """One line: everything in order, or what is not. A failure has its fix ready to copy; that of a remark is
    among all checks."""
    findings = list(findings)
    bad = [f for f in findings if f["status"] == "fail"]
    warned = [f for f in findings if f["status"] == "warn"]
    if bad:
        st.error(f"**{len(bad)} of {len(findings)} checks fail**: {', '.join(f['check'] for f in bad)}.")
        listed(bad)
    if warned:
        says = "; ".join(f["says"] for f in warned)
        st.info(
            f"{'Besides' if bad else '**Ready**, with a remark' if len(warned) == 1 else '**Ready**, with remarks'}: {says}."
        )
    if not bad and not warned:
        st.success(f"**Ready**: all {len(findings)} checks pass.")


def listed(findings: Iterable[Mapping]) -> None:
    """Each finding as a sentence, its fix below it."""
    for f in findings:
        st.markdown(f"{_SIGNS.get(f['status'], '·')} **{f['check']}** · {f['says']}")
        if f.get("fix"):
            st.code(f["fix"], language=None, wrap_lines=True)


def everything(findings: Iterable[Mapping]) -> None:
    """All of them, those in order included, folded away."""
    findings = list(findings)
    remarks = sum(f["status"] == "warn" and bool(f["fix"]) for f in findings)
    with st.expander("Every check" + (", and what the remark asks for" if remarks else "")):
        listed(findings)
