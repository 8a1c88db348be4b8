"""The Attention page over the recorded runs: choices, charts, and the comparison behind a cell."""

import dataclasses
import json

import pytest
import synthetic
from drawn_page import query, said

from fusescope.charts.bench import attention_grid
from pages._ui.attention import grid

H200 = "NVIDIA H200"


def box(at, label):
    return next(w for w in [*at.selectbox, *at.segmented_control] if w.label == label)


def test_the_device_of_the_documents_comes_before_one_with_more_cells():
    runs = [synthetic.run(f"20261120-10000{n}-bench-abcde{n}") for n in range(3)]
    names = ["NVIDIA H100 80GB HBM3", H200, "NVIDIA A100"]
    sizes = [3, 1, 2]
    runs = [
        dataclasses.replace(r, spec=r.spec | {"cases": [{}] * n}, environment={"device_name": name})
        for r, n, name in zip(runs, sizes, names, strict=True)
    ]
    assert grid.devices(runs) == [names[1], names[0], names[2]]
    assert grid.devices(runs[::2]) == [names[0], names[2]]


@pytest.mark.slow
def test_the_device_of_the_documents_comes_first_and_the_worst_cell_is_compared(draw, recorded):
    at = draw("attention")
    assert box(at, "device").value == H200 and "Geometric mean" in said(at.caption)
    cells = grid.of_device(grid.listed(), H200, "float16").cells
    worst = min((c for c in cells if c.verdict == "slower"), key=lambda c: c.ratio)
    unproven = dataclasses.replace(worst, ours_ms=2 * worst.ours_ms, compared=None)
    assert attention_grid.lost([unproven, *cells])[0] == worst, "one that is not proven has a lower ratio"
    assert json.loads(box(at, "cell, slowest first").value) == json.loads(worst.case)
    assert worst.peer in said(at.markdown) and len(at.get("plotly_chart")) == 2
    assert box(at, "compared with").value == worst.peer, "as in the map"
    ours = grid.run_of(grid.of_device(grid.listed(), H200, "float16"), worst, worst.ours, worst.ours_ms)[0]
    assert f"compares it with {worst.ours}" in said(at.caption) and ours.id in said(at.caption)


@pytest.mark.slow
def test_each_time_of_the_map_is_of_a_run(recorded):
    runs = grid.listed()
    made = [
        grid.of_device(runs, name, dtype, mode)
        for name in grid.devices(runs)
        for dtype in grid.dtypes(runs, name)
        for mode in grid.MODES.values()
    ]
    assert sum(len(one.cells) for one in made) > 100
    for one in made:
        for cell in one.cells:
            for impl, ms in ((cell.ours, cell.ours_ms), (cell.peer, cell.peer_ms)):
                assert impl in {r.impl for r in grid.run_of(one, cell, impl, ms)[1]}


@pytest.mark.parametrize("chart", ["worst first", "rates"])
def test_every_chart(draw, recorded, chart):
    at = draw("attention", chart=chart)
    assert len(at.get("plotly_chart")) == 2 and query(at)["chart"] == chart


def test_mask_and_shape_narrow_the_cells_and_are_kept_in_the_url(draw, recorded):
    at = draw("attention", mask="bigbird", shape="16×12×2048×64")
    assert len(box(at, "cell, slowest first").options) == 1
    assert query(at)["mask"] == "bigbird" and "v5_parts is correct and fastest" in said(at.markdown)


def test_a_cell_in_the_url_is_compared(draw, recorded):
    cell = next(c for c in grid.of_device(grid.listed(), H200, "float16").cells if c.mask == "strided")
    at = draw("attention", cell=cell.case)
    assert json.loads(box(at, "cell, slowest first").value)["mask"] == "strided"


def test_another_device_gives_the_cell_its_own_ratio(draw, recorded):
    """The box kept the label with the ratio of the device before: a browser is told of a value, not of its
    label."""
    h100 = "NVIDIA H100 80GB HBM3"
    both = [grid.of_device(grid.listed(), name, "float16").cells for name in (H200, h100)]
    ratios = [{c.case: grid.cell_name(c) for c in cells} for cells in both]
    case = next(c for c, name in ratios[0].items() if c in ratios[1] and ratios[1][c] != name)
    at = draw("attention", cell=case)
    assert box(at, "cell, slowest first").value == case
    box(at, "device").set_value(h100)
    at.run()
    picker = box(at, "cell, slowest first")
    assert picker.value == case
    assert picker.proto.set_value and picker.proto.raw_value == ratios[1][case]


def test_on_a_cpu_eager_calls_are_compared(draw, recorded):
    runs = grid.listed()
    cpu = next(name for name in grid.devices(runs) if not name.startswith("NVIDIA"))
    assert grid.of_device(runs, cpu, "float32").mode == "eager" and grid.of_device(runs, cpu, "float32").cells
    assert "Geometric mean" in said(draw("attention", on=cpu).caption)


def test_the_dtype_with_most_cells_comes_first(recorded):
    """By runs there was a tie on the H100, and which dtype came first was by chance."""
    assert grid.dtypes(grid.listed(), "NVIDIA H100 80GB HBM3") == ["float16", "float32"]


def test_without_any_run_the_page_leads_to_kernels(draw):
    at = draw("attention")
    assert "No attention was measured yet" in said(at.markdown) and at.main.get("page_link")


@pytest.mark.parametrize(
    ("mask", "name"),
    [
        ("sliding_window:right=0", "sliding window, right=0"),
        ("file:profiles/recorded/masks/blocks64-bigbird-512.npz", "bigbird, 64 × 64 blocks"),
        ("file:/somewhere/mine.npz", "mine"),
        ("full", "full"),
    ],
)
def test_names_of_rows(mask, name):
    assert attention_grid.mask_name(mask) == name
