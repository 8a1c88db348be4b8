"""What ships is whole, and a run that is not is named with what it lacks."""

import gzip
import json
import shutil

import pytest

from fusescope.core.paths import ROOT
from scripts import check_recorded

RUN = "20261128-032013-bench-3113d0"


@pytest.mark.long
def test_what_ships_is_whole(capsys):
    assert check_recorded.main([]) == 0, capsys.readouterr().err


@pytest.fixture
def copy(tmp_path):
    home = tmp_path / RUN
    shutil.copytree(ROOT / "profiles" / "recorded" / RUN, home)
    return home


def edit(home, **values) -> None:
    data = json.loads((home / "run.json").read_text())
    (home / "run.json").write_text(json.dumps(data | values))


def lines(home, name: str, keep) -> None:
    """Keep the lines for which ``keep`` is true, and what the writer noted of the file out of the way."""
    text = gzip.decompress((home / name).read_bytes()).decode().splitlines()
    kept = [line for at, line in enumerate(text) if keep(at, json.loads(line))]
    (home / name).write_bytes(gzip.compress("".join(f"{line}\n" for line in kept).encode()))
    data = json.loads((home / "run.json").read_text())
    data.pop("contents", None)
    (home / "run.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda h: edit(h, status="cancelled", reason="stopped"), "it is cancelled (stopped), not done"),
        (lambda h: (h / "notes.json").unlink(), "it has no title"),
        (lambda h: (h / "run.json").write_text("{"), "it cannot be read"),
        (lambda h: lines(h, "results.jsonl.gz", lambda at, _: at != 3), "1 records are missing"),
        (lambda h: lines(h, "results.jsonl.gz", lambda at, _: at > 40), "of its 11 cases"),
        (
            lambda h: lines(h, "samples.jsonl.gz", lambda _, s: s["impl"] != "sdpa"),
            "11 times have no raw samples",
        ),
    ],
    ids=["cancelled", "title", "torn", "record", "case", "samples"],
)
def test_what_is_not_whole_is_named(copy, capsys, spoil, says):
    spoil(copy)
    assert check_recorded.main([str(copy.parent)]) == 1
    said = capsys.readouterr().err
    assert RUN in said and says in said


def test_a_folder_without_runs_is_not_whole(tmp_path, capsys):
    assert check_recorded.main([str(tmp_path / "gone")]) == 1
    assert "holds no run" in capsys.readouterr().err
