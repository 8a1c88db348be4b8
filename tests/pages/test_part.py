"""A part of a page that is drawn again without it (redraw.part)."""

from drawn_page import said

from pages._ui.masks import views


def test_a_refusal_in_a_part_is_the_frames_sentence(draw, monkeypatch):
    def refuse(*_):
        raise ValueError("there is no such tile")

    monkeypatch.setattr(views, "draw", refuse)
    at = draw("masks", view="Balance")
    assert "there is no such tile" in said(at.error).lower() and not at.exception
    assert at.query_params["view"] == "Balance"
