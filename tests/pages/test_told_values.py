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
    slider, box = at.select_slider(key="kernels/attention/seq/slider"), "kernels/attention/seq"
    assert slider.value == 64
    calm(slider.set_value(128).run())
    assert at.text_input(key=f"{box}/typed").value == "128"
    calm(at.text_input(key=f"{box}/typed").set_value("99").run())  # a place of its own on the slider
    assert at.select_slider(key=f"{box}/slider").value == 99
    assert sent(at) == ["select_slider sequence"]
    calm(at.select_slider(key=f"{box}/slider").set_value(256).run())
    assert at.text_input(key=f"{box}/typed").value == "256" and at.session_state[box] == 256
