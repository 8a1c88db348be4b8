"""Figures that documents give in words are those of the tables, which are generated from recorded runs."""

import math
import re
from collections import Counter

import pytest

from fusescope.core.paths import ROOT
from fusescope.store import folder

RUNS = (  # beside SDPA, FlexAttention and FlashAttention-4
    "20261125-134959-bench-173907",
    "20261125-141357-bench-767ad2",
    "20261126-030356-bench-ff366a",
    "20261126-030427-bench-cfe9eb",
    "20261127-131415-bench-4156b8",
    "20261127-131416-bench-85e012",
    "20261129-005242-bench-cabe04",
    "20261129-010502-bench-285330",
    "20261129-010810-bench-735bb5",
    "20261129-172616-bench-40ecbd",
)


def cells(document: str, first: str) -> list[list[str]]:
    """The rows of the document's tables whose first cell matches, as cells."""
    lines = (ROOT / document).read_text().splitlines()
    rows = [[c.strip() for c in line.strip("| ").split("|")] for line in lines if line.startswith("|")]
    return [row for row in rows if re.fullmatch(first, row[0])]


def mean(ratios) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def least(ratios) -> str:
    return f"{mean(ratios):.2f}, {min(ratios):.2f}"


def attention_over_peers(numbers: int) -> tuple[list[float], ...]:
    """Ratios of README's table whose shapes have so many numbers: sparse, sparse from 2048 tokens up, windows
    over FlashAttention-4, full and causal."""
    sparse, long, windows, dense = [], [], [], []
    for shape, *masks in cells("cuda/attention/README.md", rf"(\d+, ){{{numbers - 1}}}\d+"):
        for at, text in enumerate(masks):
            if not text:
                continue
            ratios = [float(x) for x in re.findall(r"[(, ](\d+\.\d+)(?=[,)])", text)]
            (dense if at >= 6 else sparse).append(min(ratios))
            if at < 6 and int(shape.split(", ")[-2]) >= 2048:
                long.append(min(ratios))
            if at < 2:
                windows.append(ratios[1])
    return sparse, long, windows, dense


@pytest.mark.parametrize("numbers", [4, 5], ids=["an H100", "an H200"])
def test_attention_over_its_peers(numbers):
    sparse, long, windows, dense = attention_over_peers(numbers)
    said = (
        f"{len(sparse)} cells of sparse masks {least(sparse)}; {len(long)} of them from 2048 tokens up "
        f"{least(long)}; sliding windows over FlashAttention-4 {least(windows)}; "
        f"full and causal {least(dense)}."
    )
    assert said in " ".join((ROOT / "cuda/attention/README.md").read_text().split()), said


def test_verdicts_of_attention_over_its_peers():
    attention_grid = pytest.importorskip("fusescope.charts.bench.attention_grid", exc_type=ImportError)
    sparse, long, _, _ = attention_over_peers(5)
    newest: dict[str, list] = {}
    for run in RUNS:
        found: dict[str, list] = {}
        for r in folder.records(ROOT / "profiles" / "recorded" / run):
            found.setdefault(r.case_key, []).append(r)
        newest |= found
    frontend = folder.records(ROOT / "profiles" / "recorded" / "20261122-104804-bench-8f725c")
    with_it = attention_grid.cells([*frontend, *(r for records in newest.values() for r in records)])
    over_all = [cell.ratio for cell in with_it if cell.mask in ("full", "causal")]
    said = f"with it, across runs, full and causal {least(over_all)}."
    assert said in (ROOT / "cuda/attention/README.md").read_text(), said
    verdicts = {True: Counter(), False: Counter()}
    for cell in attention_grid.cells(r for records in newest.values() for r in records):
        verdicts[cell.mask in ("full", "causal")][cell.verdict] += 1
    dense, of_sparse = verdicts[True], verdicts[False]
    assert set(of_sparse) == {"faster", "inconclusive"}
    said = f"{of_sparse['faster']} of the {len(sparse)} are faster and {of_sparse['inconclusive']} "
    said += "inconclusive; of full and causal "
    said += ", ".join(f"{dense[kind]} {kind}" for kind in ("faster", "inconclusive", "slower"))
    assert said in " ".join((ROOT / "cuda/attention/README.md").read_text().split()), said
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"sparse masks are {mean(sparse):.1f} times as fast" in text
    assert f"[{len(sparse)} recorded cells]" in text
    assert f"{mean(long):.1f} times from 2048 tokens up" in text


def test_masks_of_whole_blocks_over_cudnn_frontend():
    times: dict[str, dict[str, float]] = {}
    for r in folder.records(ROOT / "profiles" / "recorded" / "20261128-032013-bench-3113d0"):
        if r.status == "ok":
            times.setdefault(str(r.case["mask"]) + str(r.case["seq"]), {})[r.impl] = r.ms
    dense = [times.pop("full128"), times.pop("full512")]
    ours = ("v3_hopper", "v4_scheduled", "v5_parts")
    ratios = [ms["cudnn_blocks"] / min(ms[i] for i in ours if i in ms) for ms in times.values()]
    said = f"{mean(ratios):.2f} times as fast as cuDNN-frontend's block-sparse attention (geometric mean of "
    said += f"{len(ratios)} cells, {min(ratios):.2f} at least"
    over = [ms["cudnn_blocks"] / min(ms[i] for i in ours) for ms in dense]
    text = " ".join((ROOT / "cuda/attention/README.md").read_text().split())
    assert said in text and f"full masks there: {over[0]:.2f} at (16, 12, 128, 64), {over[1]:.2f} at" in text


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
