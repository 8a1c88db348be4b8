"""What a grid saves: by our button alone, which makes texts harmless to a spreadsheet."""

import csv
import json
import shutil

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
NAME = "20991120-101010-bench-cccccc"


@pytest.fixture
def formula(shared_server):
    """A run whose title is a formula, the newest there is."""
    run = shared_server.profiles / NAME
    run.mkdir()
    about = {"id": NAME, "kind": "bench", "spec": {"op": "add"}, "status": "done", "created": 4.1e9}
    (run / "run.json").write_text(json.dumps(about))
    (run / "notes.json").write_text(json.dumps({"title": "=1+cmd|' /C calc'!A0"}))
    yield run
    shutil.rmtree(run)


def test_the_list_of_runs_is_saved_without_formulas(shared_server, formula, page, tmp_path):
    page.goto(shared_server.address + "/runs")
    grid = page.get_by_test_id("stDataFrame").first
    grid.wait_for()
    grid.hover()
    page.get_by_role("button", name="Search", exact=False).first.wait_for()
    made_there = page.locator('button[aria-label^="Download as CSV"]')
    made_there.first.wait_for(state="attached")
    assert not any(made_there.nth(n).is_visible() for n in range(made_there.count()))
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV", exact=True).click()
    saved.value.save_as(tmp_path / "runs.csv")
    with open(tmp_path / "runs.csv", newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if row["id"] == NAME]
    assert "'=1+cmd|' /C calc'!A0" in row.values() and "=1+cmd|' /C calc'!A0" not in row.values()
