"""A self-check opened from the library: what failed comes first, and what its figures are is said."""

import gzip
import json
import shutil

from drawn_page import said

from fusescope.core import paths

RUN = "20261126-060012-selfcheck-124762"


def test_failed_rows_lead_and_their_figures_are_explained(draw, profiles):
    shutil.copytree(paths.ROOT / "profiles" / "recorded" / RUN, profiles / "recorded" / RUN)
    file = profiles / "recorded" / RUN / "artifacts" / "selfcheck.json.gz"
    found = json.loads(gzip.decompress(file.read_bytes()))
    for row in found["rows"][-2:]:  # agreement with do_bench and nvbench
        row["passed"] = False
    file.write_bytes(gzip.compress(json.dumps(found).encode()))
    at = draw("runs", run=RUN)
    (table,) = (d.value for d in at.dataframe)
    assert list(table.columns[:3]) == ["result", "part", "check"], "the result is not cut off at the right"
    assert list(table.result[:3]) == ["failed", "failed", "passed"]
    assert set(table.part[:2]) == {"agreement"}
    assert "agreement: our time over that of another timer on the same call" in said(at.caption)
