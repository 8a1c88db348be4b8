"""The picture of a mask in the form: drawn whole, or from sampled rows, which is said."""

from urllib.parse import parse_qs

import pytest
from drawn_page import said

from fusescope import masks
from pages._ui.forms import mask_picker


@pytest.mark.long
def test_every_mask_has_a_picture(draw):
    for name in masks.names():
        values = {"padding": "padding:lengths=100"}
        at = draw("kernels", mask=values.get(name, name))
        assert len(at.get("plotly_chart")) == 1 and not at.error, name


def test_a_long_mask_is_sampled_and_says_so(draw):
    assert "256 sampled rows" in said(draw("kernels", mask="causal", seq="16384").caption)
    assert "64 sampled rows" in said(draw("kernels", mask="sliding_window", seq=str(1 << 20)).caption)


def test_the_picture_leads_to_the_mask_at_its_sizes(draw):
    at = draw("kernels", mask="sliding_window:left=9,right=3", seq="384")
    (link,) = [e for e in at.get("page_link") if "Masks" in e.proto.label and "Open" in e.proto.label]
    assert parse_qs(link.proto.query_string) == {"mask": ["sliding_window:left=9,right=3"], "seq": ["384"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", masks.names())
def test_sampled_rows_say_what_share_is_kept(name):
    text = {"padding": "padding:lengths=100"}.get(name, name)
    share = masks.parse(text).dense(4096).mean()
    _, density, sampled = mask_picker._picture(text, 4096, 4096, "")
    assert sampled == 256 and abs(density / share - 1) < 0.01


def test_the_first_row_does_not_stand_for_its_whole_stretch():
    """It sees all keys where there are global ones, and was always sampled: a long mask kept 1.6 %."""
    text = "longformer:window=128,global_tokens=64"
    _, density, sampled = mask_picker._picture(text, 1 << 18, 1 << 18, "")
    assert sampled == 64 and density == pytest.approx((2 * 128 + 1 + 2 * 64) / (1 << 18), rel=0.25)
