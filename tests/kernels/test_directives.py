"""Directives of a kernel's leading comment for the choice among kernels."""

import shutil

import pytest

from fusescope.core import directives
from fusescope.core.directives import Inputs, Tiles
from fusescope.core.paths import ROOT
from fusescope.core.sources import families


def test_what_a_kernel_takes():
    takes = directives.read(["fp16 bf16, d<=128, no-bias, scale>0, tma"], [], [])["takes"]
    good = Inputs("float16", 128, tma=True)
    assert takes.accepts(good)
    for change in ({"dtype": "float32"}, {"head_dim": 136}, {"tma": False}, {"bias": True}):
        assert not takes.accepts(Inputs(**vars(good) | change))
    assert directives.EVERYTHING.accepts(Inputs("float32", 256, bias=True, positive_scale=False))


def test_how_blocks_share_tiles():
    lines = [
        "1 per block, 1 block per SM, up to 2 tiles per SM, from 3 steps",
        "2 per block, 4 blocks per SM",
    ]
    first, last = directives.read([], [], lines)["tiles"]
    assert first == Tiles(1, 1, 2, 3) and last == Tiles(2, 4)
    assert first.holds(2.0, 3) and not first.holds(2.1, 3) and not first.holds(2.0, 2) and last.holds(99, 0)
    assert directives.read([], [], ["none"]) == {"tiles": ()}


@pytest.mark.parametrize(
    "line, says",
    [
        (
            "takes: fp8",
            "takes: fp32 fp16 bf16 d>64 d<=128 no-bias scale>0 tma softcap+sinks score fp8-cache new-token "
            "window are known, not 'fp8'",
        ),
        ("plan: lots", "plan: one of lists, schedule, parts, or such as parts, 3 query tiles, not 'lots'"),
        ("plan: parts, three query tiles", "not 'parts, three query tiles'"),
        ("plan: parts, 4 query tiles", "not 'parts, 4 query tiles'"),
        ("tiles: 2", "tiles: none, or such as 2 per block"),
        ("least: 128", "least: such as 128 rows per SM, not '128'"),
    ],
)
def test_an_unknown_word_is_a_named_complaint(line, says, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "cuda", tmp_path / "cuda")
    (tmp_path / "cuda" / "attention" / "v9_wrong.cu").write_text(f"// An idea.\n// {line}\n")
    monkeypatch.setenv("FUSESCOPE_CUDA", str(tmp_path / "cuda"))
    assert says in families()["attention"].variant("v9_wrong").idea


def test_head_sizes_and_query_tiles_of_a_group():
    found = directives.read(["d>64, d<=128"], ["parts, 3 query tiles"], [])
    assert found["plan"] == "parts" and found["group"] == 3
    assert [found["takes"].has_head_dim(n) for n in (64, 65, 128, 129)] == [False, True, True, False]
    assert directives.read([], ["parts"], []) == {"plan": "parts"}


def test_work_items_are_said_in_the_symbol():
    attention = families()["attention"]
    for v in attention.variants:
        assert v.symbol.endswith("__parts") == (v.plan == "parts")


@pytest.mark.parametrize(
    "variant", [v for f in families().values() for v in f.variants], ids=lambda v: f"{v.family}/{v.name}"
)
def test_what_ships_is_understood(variant):
    """A complaint stands in the place of the idea; an idea is a sentence."""
    complaints = ("no idea line", "directive not understood", "not swept")
    assert variant.idea.endswith(".") and not variant.idea.startswith(complaints), variant.idea
