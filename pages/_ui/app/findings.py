"""The doctor's findings: one sentence, and each finding with its exact fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import streamlit as st

from fusescope.core import doctor
from pages._ui.widgets import html_table

_SIGNS = {"ok": "✓", "warn": "!", "fail": "✗"}


@st.cache_data(ttl=20, show_spinner=False)
def examined() -> list[dict]:
    """What the doctor says of this machine, as plain values."""
    return [{"check": f.check, "status": f.status, "says": f.says, "fix": f.fix} for f in doctor.examine()]


def verdict(findings: Iterable[Mapping]) -> None:
    """One line: all checks pass, or which do not. A failure has its fix ready to copy; the fixes of warnings
    are among all checks."""
    findings = list(findings)
    bad = [f for f in findings if f["status"] == "fail"]
    warned = [f for f in findings if f["status"] == "warn"]
    if bad:
        st.error(f"**{len(bad)} of {len(findings)} checks fail**: {', '.join(f['check'] for f in bad)}.")
        listed(bad)
    if warned:
        state = "Warnings" if bad else "**Ready, with warnings**"
        st.info(f"{state}: {'; '.join(f['says'] for f in warned)}.")
    if not bad and not warned:
        st.success(f"**Ready**: all {len(findings)} checks pass.")


def listed(findings: Iterable[Mapping]) -> None:
    """Each finding as a sentence, its fix below it."""
    for f in findings:
        st.markdown(f"{_SIGNS.get(f['status'], '·')} **{f['check']}** · {f['says']}")
        if f.get("fix"):
            html_table.code(f["fix"])


def everything(findings: Iterable[Mapping]) -> None:
    """All of them, passed ones included, folded away."""
    findings = list(findings)
    fixes = any(f["status"] == "warn" and f["fix"] for f in findings)
    with st.expander("All checks and how to fix the warnings" if fixes else "All checks"):
        listed(findings)
