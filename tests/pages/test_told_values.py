"""A value that a page sends takes what its user has typed or moved since: no page sends one that has not
changed."""

import pytest
from drawn_page import calm

PAGES = {
    "attention": {},
    "kernels": {"op": "attention"},
    "masks": {"mask": "bigbird"},
    "models": {"name": "bert"},
    "scaling": {},
    "profiler": {},
    "fusion": {},
    "runs": {},
    "build": {},
}

SLIDER, TYPED = "kernels/seq/slider", "kernels/seq/typed"


def sent(at) -> list[str]:
    """The widgets whose value came with the last drawing."""
    found = (element for element in at.main if getattr(element, "proto", None) is not None)
    return [f"{e.type} {e.proto.label}" for e in found if getattr(e.proto, "set_value", False)]


@pytest.mark.parametrize("page", PAGES)
def test_a_second_drawing_sends_no_value(draw, recorded, page):
    at = draw(page, **PAGES[page])
    assert sent(calm(at.run())) == []


def test_a_slider_and_its_box_follow_each_other(draw, profiles):
    at = draw("kernels", op="attention", seq="64")
    slider, box = at.select_slider(key=SLIDER), "kernels/attention/seq"
    assert slider.value == 64
    calm(slider.set_value(128).run())
    assert at.text_input(key=TYPED).value == "128"
    calm(at.text_input(key=TYPED).set_value("99").run())  # a place of its own on the slider
    assert at.select_slider(key=SLIDER).value == 99
    assert sent(at) == ["select_slider sequence"]
    calm(at.select_slider(key=SLIDER).set_value(256).run())
    assert at.text_input(key=TYPED).value == "256" and at.session_state[box] == 256


def test_another_operator_moves_the_widgets_of_its_sizes(draw, profiles):
    """Other widgets take a browser 15 ms each; what each operator was given stays its own."""
    at = draw("kernels", op="attention", seq="64")
    before = at.select_slider(key=SLIDER).proto.id, at.text_input(key=TYPED).proto.id
    calm(at.text_input(key=TYPED).set_value("a lot").run())  # refused here
    calm(at.selectbox(key="kernels/op").set_value("split_heads").run())
    slider, box = at.select_slider(key=SLIDER), at.text_input(key=TYPED)
    assert (slider.proto.id, box.proto.id) == before
    assert slider.value == at.session_state["kernels/split_heads/seq"] == int(box.value) != 64
    calm(slider.set_value(1024).run())
    calm(at.selectbox(key="kernels/op").set_value("attention").run())
    assert at.select_slider(key=SLIDER).value == 64 and at.text_input(key=TYPED).value == "64"
    assert at.session_state["kernels/split_heads/seq"] == 1024
