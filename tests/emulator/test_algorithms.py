"""linear's choice among the algorithms of a library, by the stand-in for cuBLASLt: it offers three, of which
the second fails; times are given."""

import json
import os
import subprocess
import sys

import pytest

from fusescope.core import paths
from tests import emulator

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def process():
    """One that has imported torch; each choice is made in a fork of it."""
    library = emulator.build("linear", emulator.emulated("linear"))
    running = subprocess.Popen(
        [sys.executable, "-m", "tests.emulator.run_algorithms", str(library)],
        cwd=paths.CHECKOUT,
        env=os.environ
        | {"PYTHONPATH": paths.python_path(paths.CHECKOUT), "EMULATED_SMS": "3"}
        | {"FUSESCOPE_CUBLASLT": str(emulator.cublaslt())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield running
    running.stdin.close()
    running.wait()


@pytest.fixture
def choose(process, tmp_path):
    """choose(times of the three) -> what came of it, in a new process that finds what earlier ones stored."""

    def run(times):
        print(json.dumps([str(tmp_path), times]), file=process.stdin, flush=True)
        found = json.loads(process.stdout.readline())
        assert found is not None, "it failed: its last words are above"
        return found

    return run


@pytest.mark.long
def test_the_fastest_algorithm_is_kept_and_found_again(choose):
    first = choose([3.0, 9.0, 1.0])
    assert first["known"] == [
        {"algorithms": 2, "first_ms": 3.0, "best_ms": 1.0, "place": 2, "measured": "now"}
    ]
    assert first["taken"] == {"v1_heuristic": 0, "v2_measured": 2}
    assert first["right"] and first["timed"] == 1, "the second call of the same problem measures nothing"
    again = choose([1.0, 1.0, 3.0])
    assert again["known"][0]["measured"] == "before" and again["timed"] == 0
    assert again["taken"] == {"v1_heuristic": 0, "v2_measured": 2}


@pytest.mark.long
def test_the_first_guess_stays_where_nothing_is_clearly_faster(choose):
    found = choose([1.0, 9.0, 0.995])
    assert found["taken"]["v2_measured"] == 0 and found["known"][0]["place"] == 0


def test_a_stored_algorithm_that_fails_is_measured_anew(choose, tmp_path):
    choose([3.0, 9.0, 1.0])
    (file,) = (tmp_path / "algorithms").iterdir()
    stored = json.loads(file.read_text())
    for entry in stored.values():
        entry["algorithm"][0] = 1
    file.write_text(json.dumps(stored))
    found = choose([3.0, 9.0, 1.0])
    assert found["known"][0]["measured"] == "now" and found["taken"]["v2_measured"] == 2
