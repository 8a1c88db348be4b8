"""A self-check opened from the library: what failed comes first, and what its figures are is said."""

import shutil

from drawn_page import said

from fusescope.core import paths

RUN = "20261126-024519-selfcheck-b1d04c"


def test_failed_rows_lead_and_their_figures_are_explained(draw, profiles):
    shutil.copytree(paths.ROOT / "profiles" / "recorded" / RUN, profiles / "recorded" / RUN)
    at = draw("runs", run=RUN)
    (table,) = (d.value for d in at.dataframe)
    assert list(table.columns[:3]) == ["result", "part", "check"], "the result is not cut off at the right"
    assert list(table.result[:3]) == ["failed", "failed", "passed"]
    assert set(table.part[:2]) == {"agreement"}
    assert "agreement: our time over that of another timer on the same call" in said(at.caption)
