"""Lengths of sequences have one set of words on all pages: equal, unequal (with their mean), listed."""

import pytest
from drawn_page import widget

from fusescope.charts import captions, glossary
from pages._ui.answer import nearest


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fixed", "equal"),
        ("full", "equal"),
        ("drawn", "unequal (mean 0.6)"),
        ("uniform", "unequal (mean 0.6)"),
        ("uniform:low=0.5,seed=3", "unequal (mean 0.75)"),
        ("uniform:low=.9.9", "unequal (mean 0.95)"),
        ("100+37", "listed"),
        ("anything", "anything"),
    ],
)
def test_every_form_of_the_parameter_has_its_word(text, says):
    assert captions.lengths(text) == says


def test_a_chart_says_them_under_its_title():
    """ "unequal (mean 0.6)" of Home became "lengths=uniform" on Models."""
    assert captions.case_of({"batch": 16, "lengths": "uniform"}) == "batch=16, lengths=unequal (mean 0.6)"
    assert captions.case_of({"lengths": "fixed"}) == "lengths=equal"
    assert captions.case_of({"lengths": "100+37"}) == "lengths=100+37"


def test_what_differs_is_said_in_these_words():
    """ "lengths fixed instead of uniform" stood under a box that offers "equal" and "padded, mean 0.6"."""
    said = nearest.difference("lengths", "uniform", "fixed")
    assert said == "lengths equal instead of unequal (mean 0.6)"
    assert nearest.difference("lengths", None, "drawn") == "lengths unequal (mean 0.6) instead of none"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "query", "options"),
    [
        ("app", {}, ["equal", "unequal (mean 0.6)"]),
        ("app", {"about": "attention_decode"}, ["equal", "unequal (mean 0.6)"]),
        ("app", {"about": "attention_varlen"}, ["equal", "unequal (mean 0.6)"]),
        ("models", {}, ["equal", "unequal", "listed"]),
    ],
)
def test_every_box_offers_these_words(draw, recorded, page, query, options):
    at = draw(page, **query)
    drawn = widget([*at.selectbox, *at.button_group], "lengths")
    assert [str(o.content if hasattr(o, "content") else o) for o in drawn.options] == options


def test_the_box_has_them_explained():
    assert "mean 0.6" in glossary.about("lengths")
