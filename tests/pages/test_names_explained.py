"""A name in a table of results says on hover what it is."""

import pytest
from drawn_page import calm

from fusescope.charts import glossary
from pages._ui.answer import views


def html(at) -> str:
    return "".join(e.proto.body for e in at.get("html"))


def test_an_operator_that_is_gone_has_no_ideas():
    assert views.ideas("gone", "cpu") == views.ideas("model:gone", "cpu") == {}


@pytest.mark.slow
def test_an_execution_mode_says_what_it_is(draw, recorded):
    """Nothing but the code said what sdpa-graph-trap is."""
    text = html(calm(draw("models", recorded_on="NVIDIA H200")))
    assert "<abbr title='Hugging Face with attention as matmul + softmax + matmul'>eager</abbr>" in text
    assert views.ideas("model:bert-base", "cuda:0")["sdpa-graph-trap"].startswith("sdpa captured as it comes")
    assert "compare with sdpa-graph" in glossary.of("sdpa-graph-trap")


def test_an_implementation_says_what_it_is(draw, few):
    at = draw("kernels")
    assert "<abbr title='" + views.ideas("attention", "cuda:0")["eager"] in html(at)
