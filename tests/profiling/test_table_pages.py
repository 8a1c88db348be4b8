"""Pages of a profile's tables, searched by what their texts hold."""

from __future__ import annotations

import pytest
from made_up import kernel, load, op, trace

from fusescope.store import profile

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path):
    """Forty kernels of thirty names, half of them with an operator around their launch."""
    events = [
        kernel(n + 1, 10 * n, n + 1, f"Kernel_{n % 30:02d}<{'f' if n % 2 else 'h'}>", external=n + 1)
        for n in range(40)
    ]
    events += [op("aten::mul" if n < 10 else 'it\'s 100% "odd"', 10 * n, 1, n + 1) for n in range(20)]
    load(trace(tmp_path / "t.json", events), tmp_path / "artifacts")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("kernel_07", 2),
        ("KERNEL_2", 10),
        ("kernel_", 40),
        ("aten::MUL", 10),
        ('100% "odd', 10),
        ("it's", 10),
        ("<f>", 20),
        ("no such", 0),
        ("%", 10),
        (" ", 40),
    ],
)
def test_a_text_is_found_in_any_column_in_upper_and_lower_case(run, text, count):
    data, total = profile.page(run, "kernels", "dur_ns", text=text, limit=7, offset=1)
    assert total == count and len(data) == min(7, max(0, count - 1))
    assert data["dur_ns"].is_monotonic_decreasing


def test_numbers_hold_no_text(run):
    assert profile.page(run, "steps", text="a")[1] == 0
