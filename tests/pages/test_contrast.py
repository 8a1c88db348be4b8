"""Colours and words of charts against the page in both themes, and what a colour says."""

import pytest

from fusescope.charts import colours, template


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_keeps_three_to_one_against_the_page(theme):
    impls = [
        "auto",
        "cpu",
        "eager",
        "sdpa",
        "sdpa_flash",
        "sdpa_cudnn",
        "sdpa_efficient",
        "sdpa_math",
        "flex",
        "compile",
        "x.py:f",
    ]
    impls += [f"v{n}_x" for n in range(1, 12)] + [f"peer{n}" for n in range(40)]
    paper = template.THEMES[theme]["paper"]
    assert {
        i: round(contrast(colours.colour(i), paper), 2)
        for i in impls
        if contrast(colours.colour(i), paper) < 3
    } == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_keep_the_contrast_of_normal_text(theme):
    c = template.THEMES[theme]
    assert contrast(c["ink"], c["paper"]) > 7 and contrast(c["muted"], c["paper"]) > 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_popovers_have_the_colour_scheme_of_the_page(draw, monkeypatch, theme):
    """They lie outside the element that has it, and the headings of a table ask for it."""
    from pages._ui.widgets import style

    monkeypatch.setattr(style, "theme", lambda: theme)
    styles = "".join(e.proto.body for e in draw("help").get("html"))
    assert f'[data-testid="stPopoverBody"] {{ color-scheme: {theme} }}' in styles


def test_ours_are_orange_and_peers_are_not():
    ours = {colours.colour(f"v{n}_x") for n in range(1, 8)} | {colours.colour("cpu"), colours.colour("auto")}
    peers = {colours.colour(n) for n in ("eager", "sdpa", "flex", "torch_matmul", "compile", "cudnn")}
    assert all(hue(c) < 40 for c in ours) and not ours & peers
    assert all(180 < hue(c) < 260 for c in peers)


def test_a_colour_depends_on_the_name_alone():
    assert colours.colour("some_peer") == colours.colour("some_peer") != colours.colour("v1_rowwise")
    assert colours.short("/home/a/b/mine.py:fast") == "mine.py:fast"


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    """WCAG 2.1 contrast ratio."""
    x, y = sorted((luminance(a), luminance(b)))
    return (y + 0.05) / (x + 0.05)


def hue(colour: str) -> float:
    import colorsys

    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return colorsys.rgb_to_hsv(r, g, b)[0] * 360
