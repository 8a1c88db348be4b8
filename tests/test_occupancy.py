"""Theoretical occupancy against NVIDIA's own calculator: a sample here, all 21,000 launches where the file
is."""

import csv
from pathlib import Path

import pytest

from fusescope.analysis.occupancy import LIMITS, theoretical
from fusescope.core import paths

GOLDEN = paths.ROOT.parent / "shared" / "data" / "occupancy_golden.csv"
SAMPLE = Path(__file__).parent / "data" / "occupancy_sample.csv"
BITS = {1: "warps", 2: "registers", 4: "shared memory", 8: "blocks"}


def check(row):
    """Blocks and every limit agree; the limiter is the first of those that the calculator names."""
    got = theoretical(
        row["cc"], int(row["block"]), int(row["regs"]), int(row["static_smem"]), int(row["dyn_smem"])
    )
    active = int(row["active"])
    assert got.active_blocks == active
    assert got.active_warps == active * -(-int(row["block"]) // 32)
    for name, column in (
        ("warps", "limW"),
        ("registers", "limR"),
        ("shared memory", "limS"),
        ("blocks", "limB"),
    ):
        limit = int(row[column])
        assert got.by[name] == (None if limit == 2**31 - 1 else limit)
    named = [name for bit, name in BITS.items() if int(row["mask"]) & bit]
    assert got.limiter == (named[0] if active else "unlaunchable")


def rows(path):
    with path.open() as file:
        yield from csv.DictReader(file)


def test_sample_of_every_capability():
    found = list(rows(SAMPLE))
    assert {r["cc"] for r in found} == {f"{a}.{b}" for a, b in LIMITS}
    for row in found:
        check(row)


@pytest.mark.slow
@pytest.mark.skipif(not GOLDEN.is_file(), reason=f"the full table {GOLDEN.name} is not on this machine")
def test_all_golden_launches():
    found = list(rows(GOLDEN))
    assert len(found) == 21000
    for row in found:
        check(row)


def test_known_launch():
    got = theoretical((9, 0), block=256, registers=64)
    assert (got.active_blocks, got.active_warps, got.occupancy, got.limiter) == (4, 32, 0.5, "registers")
    assert theoretical("9.0", 256, 64) == got == theoretical([9, 0], 256, 64)


def test_ties_go_to_the_first_of_the_order():
    assert theoretical((8, 0), block=1024, registers=32).limiter == "warps"
    assert theoretical((8, 0), block=64, registers=32).limiter == "warps"
    assert theoretical((8, 0), block=32, registers=16).limiter == "blocks"


@pytest.mark.parametrize(
    "launch,says",
    [
        (dict(block=2048, registers=32), "at most 1024 threads, not 2048"),
        (dict(block=256, registers=256), "at most 255 registers, not 256"),
        (dict(block=1024, registers=128), "exceed the 65536 registers"),
        (dict(block=256, registers=32, dynamic_smem=240000), "exceed the 232448 that a block may have"),
    ],
)
def test_what_cannot_be_launched(launch, says):
    got = theoretical((9, 0), **launch)
    assert (got.active_blocks, got.active_warps, got.occupancy, got.limiter) == (0, 0, 0.0, "unlaunchable")
    assert says in got.reason


@pytest.mark.parametrize(
    "arguments,says",
    [
        (((6, 1), 256, 32), "known for compute capability 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0, not (6, 1)"),
        (("9", 256, 32), "not '9'"),
        (((9, 0), 0, 32), "block must be an integer of at least 1, not 0"),
        (((9, 0), 256, -1), "registers must be an integer of at least 0, not -1"),
        (((9, 0), 25.5, 32), "block must be an integer of at least 1, not 25.5"),
        (((9, 0), 256, 32, -4), "static_smem must be an integer of at least 0, not -4"),
    ],
)
def test_wrong_arguments(arguments, says):
    with pytest.raises(ValueError) as error:
        theoretical(*arguments)
    assert says in str(error.value)
