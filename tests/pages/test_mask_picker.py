"""The picture of a mask in the form: drawn whole, or from sampled rows, which is said."""

from urllib.parse import parse_qs

import pytest
from drawn_page import calm, query, said, widget

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


@pytest.mark.slow
def test_home_asks_a_mask_with_its_parameters(draw, recorded):
    """Windows could not be asked: there are boxes for a mask that has them, and the URL keeps them."""
    at = draw("app", on="NVIDIA H200", about="attention", seq="2048")
    boxes = {e.label for e in at.text_input}
    assert not boxes & {"left", "right", "window"}
    calm(widget(at.selectbox, "mask").set_value("sliding_window").run())
    assert [widget(at.text_input, side).value for side in ("left", "right")] == ["128", "128"]
    assert query(at)["mask-full"] == "sliding_window"
    calm(widget(at.text_input, "right").set_value("0").run())
    assert query(at)["mask-full"] == "sliding_window:right=0"
    assert "Attention under sliding_window:left=128,right=0: " in said(at.markdown)
    assert "not recorded" not in said(at.markdown)
    again = draw("app", **query(at))
    assert [widget(again.text_input, side).value for side in ("left", "right")] == ["128", "0"]
    assert not again.warning and said(again.markdown) == said(at.markdown)


@pytest.mark.slow
def test_home_names_the_parameters_in_which_the_nearest_mask_differs(draw, recorded):
    at = draw("app", on="NVIDIA H200", about="attention", **{"mask-full": "sliding_window:left=100,right=64"})
    assert "Nearest recorded (mask left 64 instead of 100): " in said(at.markdown)


@pytest.mark.slow
@pytest.mark.parametrize("name", masks.names())
def test_home_asks_every_mask(draw, recorded, name):
    """Padding, which needs lengths, ended the page."""
    at = draw("app", **{"mask-full": "padding:lengths=100" if name == "padding" else name})
    assert not at.error and not at.warning and widget(at.selectbox, "mask").value == name
    given = "padding:lengths=100" if name == "padding" else name
    assert query(at).get("mask-full", "full") == given


@pytest.mark.slow
def test_a_mask_is_chosen_on_home_before_its_lengths_are_typed(draw, recorded):
    at = draw("app")
    calm(widget(at.selectbox, "mask").set_value("padding").run())
    assert not at.error and query(at)["mask-full"] == "padding:lengths=307"


@pytest.mark.parametrize("text", ["sliding_window:left=-1", "file:/tmp/mask.npy", "no_such"])
def test_home_ignores_a_mask_that_it_cannot_ask(draw, text):
    at = draw("app", **{"mask-full": text})
    assert "Ignored mask-full=" in said(at.warning) and widget(at.selectbox, "mask").value == "full"


def test_a_parameter_out_of_bounds_is_refused_where_it_is_typed(draw):
    at = draw("app", **{"mask-full": "sliding_window"})
    widget(at.text_input, "left").set_value("-1").run()
    assert "left must be" in said(at.error) and "not recorded" not in said(at.markdown)


def test_an_operator_begins_with_its_own_mask(draw):
    at = draw("app", about="gat")
    assert widget(at.text_input, "density").value == "0.01" and "mask" not in query(at)


def test_a_link_resets_what_was_typed_into_a_mask(draw):
    """The back button to a mask with its defaults kept the window that was typed since."""
    at = draw("app", **{"mask-full": "sliding_window"})
    calm(widget(at.text_input, "left").set_value("7").run())
    at.query_params.clear()
    at.query_params["mask-full"], at.query_params["batch"] = "sliding_window", "3"
    assert widget(calm(at.run()).text_input, "left").value == "64"


@pytest.mark.slow
@pytest.mark.parametrize("by", ["gallery", "box"])
def test_another_mask_keeps_what_both_have(draw, by):
    """From dilated to strided, a window of 64 went back to 128."""
    at = draw("masks", seq="2048", mask="dilated:window=64,dilation=4")

    def choose(name):
        if by == "gallery":
            at.button(key=f"gallery/{name}").click()
        else:
            at.selectbox(key="masks/mask/name").set_value(name)
        return query(calm(at.run()))["mask"]

    assert choose("strided") == "strided:window=64"
    assert choose("causal") == "causal" and choose("strided").startswith("strided")
    assert query(draw("masks", seq="2048", mask="strided"))["mask"] == "strided", "as a link says"


def test_what_another_mask_does_not_take_is_left(draw):
    at = draw("masks", seq="2048", mask="dilated:window=64,dilation=4")
    at.text_input(key="masks/seq/typed").set_value("4096")
    at.selectbox(key="masks/mask/name").set_value("longformer")
    assert query(calm(at.run()))["mask"] == "longformer:window=64", "a default follows the length"
    at = draw("masks", seq="2048", mask="dilated")
    at.selectbox(key="masks/mask/name").set_value("longformer")
    assert query(calm(at.run()))["mask"] == "longformer", "its own default, not that of the mask before"
