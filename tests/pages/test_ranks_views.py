"""The Profiler page on a profile of many ranks: each view, one rank's views, and hostile names as text."""

import json
import sys
from pathlib import Path

import folders
import profiles_on_disk as disk
import pytest
import synthetic
from drawn_page import calm, query, said

sys.path.append(str(Path(__file__).resolve().parents[1] / "profiling" / "ranks"))

import made_up_ranks

from fusescope.profiling.ranks import importer
from pages._ui.profiler.views import choice

pytestmark = pytest.mark.slow

RUN = "20261123-120000-import-dddddd"


@pytest.fixture
def there(profiles, tmp_path):
    run = synthetic.run(RUN, kind="import", spec={"file": "/traces", "form": "ranks"})
    path = folders.write(profiles, run, [], samples=False)
    files = made_up_ranks.write(tmp_path, ranks=3, name=disk.EVIL)

    def target(name):
        file = path / "artifacts" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    importer.load(files, target, lambda share, text: None)
    return path


@pytest.mark.parametrize("view", choice.OF_RANKS)
def test_every_view_over_all_ranks_draws(draw, there, view):
    at = draw("profiler", run=RUN, view=view)
    assert not at.error and not at.warning and not at.exception
    assert query(calm(at.run())).get("view", "Time by rank") == view
    figures = json.dumps([json.loads(c.proto.spec) for c in at.get("plotly_chart")], ensure_ascii=False)
    html = said(at.markdown) + said(at.caption) + "".join(e.proto.body for e in at.get("html"))
    assert figures and disk.EVIL not in figures and disk.EVIL not in html
    if view == "Time by rank":
        assert "Rank 2 holds the others up" in said(at.markdown)
    if view == "Kernels by rank":
        assert "rank 0 (ms)" in html and "rank 2 (ms)" in html, "the first and the last are compared"


@pytest.mark.parametrize("view", ["Overview", "Timeline", "Tables"])
def test_one_rank_has_the_views_of_a_single_profile(draw, there, view):
    at = draw("profiler", run=RUN, rank="1", view=view)
    assert not at.error and not at.exception and query(at)["rank"] == "1"
