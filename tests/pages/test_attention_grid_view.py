"""The Grid view of a run of attention: charts over all sittings of its device, and a sentence where there is
no grid."""

import shutil

import pytest
from drawn_page import calm, said

from fusescope.core.paths import ROOT
from fusescope.store import folder

RECORDED = sorted(p for p in (ROOT / "profiles" / "recorded").glob("*-bench-*"))


def homes(op):
    return [p for p in RECORDED if folder.read(p).spec.get("op") == op]


@pytest.fixture
def with_recordings(profiles):
    (profiles / "recorded").mkdir(exist_ok=True)
    for home in [*homes("attention"), homes("softmax")[0]]:
        shutil.copytree(home, profiles / "recorded" / home.name)
    return profiles


def test_the_grid_is_over_all_runs(draw, with_recordings):
    found = [p for p in homes("attention") if folder.read(p).spec.get("dtype") == "float16"]
    at = draw("runs", run=found[0].name, view="Grid")
    assert "Geometric mean" in said(at.caption)
    chart = next(c for c in at.segmented_control if c.label == "chart")
    for name in ("worst first", "rates"):
        chart.set_value(name)
        at = calm(at.run())
        assert not at.exception and "of several results for a kernel and case the newest counts" in said(
            at.caption
        )


def test_another_operator_has_no_grid(draw, with_recordings):
    at = draw("runs", run=homes("softmax")[0].name, view="Grid")
    assert "open an attention run" in said(at.caption)
