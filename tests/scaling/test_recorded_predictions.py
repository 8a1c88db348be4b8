"""The table of docs/internals/scaling.md is what the recorded runs over four GPUs and the predictor say."""

import re

import pytest

from fusescope.core.paths import ROOT
from fusescope.models.describe import predicted
from fusescope.store import folder

TEXT = (ROOT / "docs" / "internals" / "scaling.md").read_text()
RUNS = {"Llama": "20261127-092246-parallel-7bcf5d", "BERT": "20261127-092441-parallel-498ef5"}


def rows() -> list[tuple[str, str, list[str]]]:
    """(model, layout, cells of predicted, measured and error) of each line."""
    found, model = [], ""
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and re.fullmatch(r"(tp|pp|dp)[24]", cells[1]):
            model = cells[0].split()[0].split("-")[0] or model if cells[0] else model
            found.append((model, cells[1], cells[3:]))
    return found


@pytest.mark.parametrize("model, layout, said", rows(), ids=lambda v: v if isinstance(v, str) else "")
def test_a_line_of_the_table(model, layout, said):
    assert RUNS[model] in TEXT
    home = ROOT / "profiles" / "recorded" / RUNS[model]
    run, records = folder.read(home), folder.records(home)
    by_impl = {c.impl: c for c in predicted.compared(records, run.environment)}
    found = [c for impl, c in by_impl.items() if impl.endswith(f"-{layout}")]  # in the order of the run
    times, taken = [c.predicted_ms for c in found], [c.measured_ms for c in found]
    off, bounds = [a / b - 1 for a, b in zip(times, taken)], {c.host_bound for c in found}
    assert bounds == {said[0].startswith("≥")}
    assert [float(n) for n in re.findall(r"[\d.]+", said[0])] == pytest.approx(times, rel=0.005)
    assert [float(n) for n in re.findall(r"[\d.]+", said[1])] == pytest.approx(taken, rel=0.005)
    errors = [float(n.replace("−", "-")) for n in re.findall(r"[+−][\d.]+", said[2])]
    assert errors == pytest.approx([100 * e for e in off], abs=0.6)
