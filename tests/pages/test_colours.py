"""Implementations are told apart: by colour and marker, also with a colour-vision deficiency."""

import colorsys
import itertools
import re
from functools import cache

import numpy as np
import pytest

from fusescope import models, ops
from fusescope.charts import colours, escape, template
from fusescope.core import paths
from fusescope.models.describe import modes

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency",
# 2009: linear RGB as seen with full deuteranopia and protanopia.
_SIGHTS = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
# Ottosson, "A perceptual color space for image processing", 2020: linear RGB to Oklab
_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
SEEN, CLEAR = 0.02, 0.06
"""Oklab distances: just seen side by side; told apart in a chart without a marker."""


def lab(colour: str, sight: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return _LAB @ np.cbrt(_LMS @ np.clip(_SIGHTS[sight] @ linear, 0, 1))


def distance(a: str, b: str, sights=tuple(_SIGHTS)) -> float:
    return min(float(np.linalg.norm(lab(a, s) - lab(b, s))) for s in sights)


@cache
def together():
    """What stands in one chart: the implementations of an operator, the modes of a model."""
    charts = {op: [i.name for i in ops.implementations(op)] for op in ops.names()}
    charts |= {f"model:{name}": [m.name for m in modes.modes(name)] for name in models.names()}
    return [pytest.param(names, id=name) for name, names in charts.items()]


@pytest.mark.parametrize("names", together())
def test_what_appears_together_has_colours_of_its_own_and_markers_where_those_are_close(names):
    assert len(names) > 2
    for a, b in itertools.combinations(names, 2):
        apart = distance(colours.colour(a), colours.colour(b))
        other = colours.marker(a) != colours.marker(b)
        assert distance(colours.colour(a), colours.colour(b), ("normal",)) > SEEN, (a, b)
        assert other or apart > CLEAR, f"{a} and {b}: {apart:.3f} apart and both {colours.marker(a)}"


@pytest.mark.parametrize("names", together())
def test_ours_and_peers_stay_apart_with_every_colour_vision(names):
    ours = [n for n in names if colours.kind(n) == "ours"]
    for a, b in itertools.product(ours, set(names) - set(ours)):
        assert distance(colours.colour(a), colours.colour(b)) > SEEN, (a, b)


def test_every_marker_is_known_to_plotly_and_has_a_character():
    import plotly.graph_objects as go

    names = {n for case in together() for n in case.values[0]} | {"auto", "my.py:f", "their.py:g", "unknown"}
    names |= {f"v{n}_x" for n in range(1, 10)} | {f"peer{n}" for n in range(60)}
    for name in names:
        go.scatter.Marker(symbol=colours.marker(name))  # ValueError where plotly does not know it
        assert len(colours.glyph(name)) == 1


def test_several_functions_of_a_user_are_told_apart():
    looks = {(colours.colour(f"mine.py:f{n}"), colours.marker(f"mine.py:f{n}")) for n in range(8)}
    assert len(looks) >= 6


def test_faster_and_slower_are_no_implementations_colours():
    faster, slower = template.FASTER, template.SLOWER
    assert distance(faster, slower) > CLEAR
    names = {n for case in together() for n in case.values[0]}
    assert all(distance(colours.colour(n), c, ("normal",)) > 0.04 for n in names for c in (faster, slower))


def test_series_are_no_implementations_and_their_neighbours_stay_apart():
    """Orange is ours, green is faster, purple is slower: what is none of them takes another hue."""
    meant = [colours.OURS, template.FASTER, template.SLOWER]
    for one in (*colours.SERIES, *escape.HUES):
        assert min(distance(one, m, ("normal",)) for m in meant) > CLEAR, one
    for a, b in itertools.pairwise(colours.SERIES):
        assert distance(a, b) > CLEAR, (a, b)


def test_no_chart_has_an_orange_of_its_own():
    """Every hue between red and yellow in charts is an implementation's: of ``colours`` alone."""
    for file in (paths.ROOT / "backend" / "fusescope" / "charts").rglob("*.py"):
        if file.name in ("colours.py", "graph.py"):
            continue  # graph: our kernels, paler so that text is readable on them
        for text in re.findall(r"#[0-9A-Fa-f]{6}\b", file.read_text()):
            red, green, blue = (int(text[i : i + 2], 16) / 255 for i in (1, 3, 5))
            hue, saturation, _ = colorsys.rgb_to_hsv(red, green, blue)
            assert saturation < 0.5 or not 10 < 360 * hue < 42, f"{file.name}: {text}"
