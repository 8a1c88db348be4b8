"""Figures that documents give in words are those of the tables, which are generated from recorded runs."""

import math
import re
from collections import Counter

import pytest

from fusescope.core.paths import ROOT
from fusescope.store import folder

RUNS = ("20261125-134959-bench-173907", "20261125-141357-bench-767ad2")  # over all peers


def cells(document: str, first: str) -> list[list[str]]:
    """The rows of the document's tables whose first cell matches, as cells."""
    lines = (ROOT / document).read_text().splitlines()
    rows = [[c.strip() for c in line.strip("| ").split("|")] for line in lines if line.startswith("|")]
    return [row for row in rows if re.fullmatch(first, row[0])]


def mean(ratios) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def test_attention_over_its_grid():
    grid = cells("cuda/attention/README.md", r"(\d+, ){3}\d+")
    pairs = [[tuple(map(float, re.findall(r"[(, ](\d+\.\d+)", c)[-2:])) for c in row[1:]] for row in grid]
    peers = [[re.search(r"\((\d+\.\d+)", c)[1] for c in row[1:7]] for row in grid]
    over = [float(x) for row in peers for x in row]
    long = [float(x) for at, row in zip(grid, peers) if int(at[0].split(", ")[2]) >= 2048 for x in row]
    windows = [p[1] for at, row in zip(grid, pairs) if int(at[0].split(", ")[2]) >= 512 for p in row[:2]]
    for ratios, name in (
        (over, "element masks: .*"),
        (long, "the same from S = 2048 up"),
        (windows, "sliding windows from S = 512 up: .*"),
    ):
        ((*_, measured, lowest),) = cells("cuda/attention/README.md", name)
        assert (measured, lowest) == (f"{mean(ratios):.2f}", f"{min(ratios):.2f}"), name
    assert f"[{len(over)} recorded cells]" in (text := (ROOT / "README.md").read_text())
    assert f"{mean(over):.1f} times as fast as the best of SDPA and FlexAttention" in text.replace("\n", " ")


def test_attention_over_all_peers():
    attention_grid = pytest.importorskip("fusescope.charts.bench.attention_grid", exc_type=ImportError)
    grid = [row[1:] for row in cells("cuda/attention/README.md", r"(\d+, ){4}\d+")]
    least = [[min(map(float, re.findall(r"[(, ](\d+\.\d+)(?=[,)])", c))) for c in row] for row in grid]
    sparse, dense = [x for row in least for x in row[:-2]], [x for row in least for x in row[-2:]]
    said = (
        f"{len(sparse)} cells of sparse masks {mean(sparse):.2f} in the geometric mean, {min(sparse):.2f} at "
    )
    said += f"least; full and causal {mean(dense):.2f}, {min(dense):.2f}."
    assert said in " ".join((ROOT / "cuda/attention/README.md").read_text().split())
    runs = [ROOT / "profiles" / "recorded" / run for run in RUNS]
    verdicts = {True: Counter(), False: Counter()}
    for cell in attention_grid.cells(r for run in runs for r in folder.records(run)):
        verdicts[cell.mask in ("full", "causal")][cell.verdict] += 1
    assert verdicts[False] == {"faster": len(sparse)}
    assert verdicts[True] == {"slower": 1, "faster": 3, "inconclusive": 6}
    in_short = f"{mean(sparse):.1f} times where that runs on FlashAttention-4 ({len(sparse)} cells"
    assert in_short in " ".join((ROOT / "README.md").read_text().split())


def test_packed_attention_over_its_peers():
    table = {row[0]: row[1:] for row in cells("cuda/attention_varlen/README.md", r"\w+")}
    ours = [float(x) for x in table["v3_hopper"]]
    peers = [row for name, row in table.items() if re.match("sdpa|flash|flex|eager", name)]
    best = [min(float(c) for c in column if c[0].isdigit()) for column in zip(*peers)]
    text = " ".join((ROOT / "cuda/attention_varlen/README.md").read_text().split())
    for over in ([float(x) for x in table["sdpa"]], best):
        ratios = [a / b for a, b in zip(over, ours)]
        said = [f"{r:.2f}" for r in ratios]
        assert f"{', '.join(said[:3])} and {said[3]} times as fast" in text, said
