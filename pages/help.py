"""How do I compare my own kernel, what do the words mean, and how far can the numbers be trusted?"""

import re
from pathlib import Path, PurePosixPath

import streamlit as st

from fusescope.charts import glossary
from fusescope.core.paths import ROOT
from pages._ui.app import frame, url
from pages._ui.forms import fields

ORDER = 9
_DOCS = ROOT / "docs"
_GLOSSARY = "glossary"
_FIRST = ("own-kernel", "reliability", "wrong-kernels")


def _documents() -> dict[str, Path]:
    """Name → file, those that most people look for first; of an installed package, none."""
    found = {f.relative_to(_DOCS).with_suffix("").as_posix(): f for f in sorted(_DOCS.rglob("*.md"))}
    return {name: found[name] for name in (*(n for n in _FIRST if n in found), *found)}


def _title(name: str) -> str:
    return name.rpartition("/")[2].replace("-", " ").capitalize() + (" (internals)" if "/" in name else "")


def _here(text: str, name: str) -> str:
    """Markdown whose links to other documents lead to this page, and whose links to files stay plain text;
    fences lose what only the tests of the documents read."""

    def link(match: re.Match) -> str:
        label, target = match[1], match[2].partition("#")[0]
        if "://" in target or not target:
            return match[0]
        parts: list[str] = []
        for part in (PurePosixPath(name).parent / target).parts:
            parts = parts[:-1] if part == ".." else [*parts, part]
        other = "/".join(parts).removesuffix(".md")
        return f"[{label}]({url.link('help', doc=other)})" if other in _documents() else label

    parts = re.sub(r"^(```\w*) .*$", r"\1", text, flags=re.MULTILINE).split("```")
    parts[::2] = [re.sub(r"^(#+) ", r"##\1 ", part, flags=re.MULTILINE) for part in parts[::2]]
    text = "```".join(parts)  # headings below the page's own, outside of code
    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", link, text)


with frame.page(__file__, __doc__) as state:
    names = [_GLOSSARY, *_documents()]
    doc = fields.pick(state, "doc", "document", names, form="pills", required=True, format_func=_title)
    with st.container(width=860):
        if doc == _GLOSSARY:
            st.markdown(glossary.table())
        else:
            st.markdown(_here(_documents()[doc].read_text(), doc))
