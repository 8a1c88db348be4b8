"""The Help page: documents as they are on disk, with links that lead to one another, and the glossary."""

import re

import pytest
from drawn_page import calm, query, said

from fusescope.charts import glossary
from fusescope.core.paths import ROOT

DOCS = sorted(f.relative_to(ROOT / "docs").with_suffix("").as_posix() for f in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("name", DOCS)
def test_every_document_is_shown_and_its_links_lead_to_documents(draw, name):
    at = draw("help", doc=name)
    text = "\n".join(m.value for m in at.main.markdown)
    assert query(at)["doc"] == name and len(text) > 200 and not at.warning
    outside = "".join(text.split("```")[::2])
    assert not re.search(r"\]\((?!https?://|/help\?doc=)", outside), "a link that this page cannot follow"
    for other in re.findall(r"/help\?doc=([^)]+)", outside):
        assert other.replace("%2F", "/") in DOCS
    assert not re.search(r"^#{1,2} ", outside, re.MULTILINE), "the page has its own heading"


def test_the_glossary_comes_first_and_has_one_sentence_for_each_term(draw):
    text = said(calm(draw("help")).markdown)
    for term, sentence in glossary.TERMS.items():
        assert term in text and sentence.endswith(".")


@pytest.mark.parametrize(
    ("label", "term"),
    [
        ("Dtype", "dtype"),
        ("implementations", "implementation"),
        ("occupancy (%)", "occupancy"),
        ("rows", None),
        ("KV heads", "KV heads (GQA, MQA)"),
        ("bias", "bias (ALiBi, relative positions)"),
    ],
)
def test_a_label_that_names_a_term_says_what_it_means(label, term):
    assert glossary.about(label) == (glossary.TERMS[term] if term else None)


def test_terms_on_the_pages_are_explained_on_hover(draw):
    at = draw("app")
    assert next(s for s in at.selectbox if s.label == "dtype").help == glossary.TERMS["dtype"]
