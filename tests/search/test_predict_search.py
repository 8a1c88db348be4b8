"""The verbs predict and search."""

import json
import os
import random

import pytest

from fusescope.cli import main
from fusescope.cli.verbs import search
from fusescope.core.paths import ROOT
from fusescope.search import encoding

pytest.importorskip("xgboost")


def _valid(name, data):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(
        json.loads((ROOT / "backend" / "fusescope" / "schemas" / f"{name}.json").read_text())
    ).validate(data)


@pytest.fixture
def measured(tmp_path):
    """A made-up landscape: fewer cuts are faster, the attention helps, a little noise."""
    draw = random.Random(3)
    codes = draw.sample(list(encoding.schemes(False)), 70) + draw.sample(list(encoding.schemes(True)), 30)
    times = {
        c: 1.0 + 0.05 * len(encoding.boundaries(c)) - 0.3 * encoding.attention(c) + draw.gauss(0, 0.005)
        for c in codes
    }
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{c}\t{ms:.6f}\n" for c, ms in times.items()))
    return file, times


@pytest.mark.slow
def test_predict(capsys, measured, tmp_path):
    file, times = measured
    code = next(iter(times))
    saved = tmp_path / "cost_model.json"
    assert main(["predict", code, "--data", str(file), "--json", "--save", str(saved)]) == 0
    data = json.loads(capsys.readouterr().out)
    _valid("predict", data)
    assert abs(data["ms"] / times[code] - 1) < 0.05 and data["measured_ms"] == pytest.approx(
        times[code], rel=1e-5
    )
    assert data["validation"]["rank_correlation"] > 0.9 and data["low"] < data["ms"] < data["high"]
    assert main(["predict", code, "--data", str(saved), "--json", "--threshold", str(2 * data["ms"])]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["ms"] == pytest.approx(data["ms"], rel=1e-6) and (again["performance"], again["class"]) == (
        1,
        "High",
    )
    assert main(["predict", code, "--data", str(saved), "--threshold", str(data["ms"] / 2)]) == 0
    assert " 0 (Low)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, says",
    [
        (["0101", "--data", "x"], "16 characters"),
        (["0", "--data", "/nowhere/x"], "/nowhere/x"),
        (["0"], "--data"),
    ],
)
def test_predict_refuses(capsys, words, says):
    assert main(["predict", *words]) in (1, 2)
    captured = capsys.readouterr()
    assert says in captured.err and captured.out == ""


def test_a_pipe_is_refused_and_not_waited_for(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, says in (("pipe", "is no plain file"), ("", "is no plain file"), ("none", "No such file")):
        assert main(["predict", "0", "--data", str(tmp_path / name)]) in (1, 2)
        assert says in capsys.readouterr().err


def test_the_answer_of_a_search():
    speedup = {"of": "eager", "median": 1.4, "low": 1.3, "high": 1.5, "verdict": "faster"}
    step = {"number": 1, "code": "0" * 16, "ms": 1.0, "best_code": "0" * 16, "best_ms": 1.0}
    edge = {"after": 3, "names": ["scores", "mask"], "effect_ms": 0.1, "low": 0.05, "high": 0.15}
    found = {
        "strategy": "random",
        "history": [step],
        "result": {"code": "0" * 16, "ms": 1.0, "speedups": {"unfused": speedup}},
        "boundaries": [
            edge,
            edge | {"after": None, "effect_ms": -0.2, "low": -0.3, "high": -0.1},
            edge | {"after": 9, "low": -0.1},
        ],
        "segments": [{"operators": [0, 1], "ms": 0.2, "count": 3}],
    }
    data = search.answer("r", "done", None, found)
    _valid("search", data)
    text = search.text(data)
    assert (
        "over unfused" in text
        and "faster" in text
        and "a cut between 3 scores and 4 mask: +" in text
        and "mask: −200 µs [-0.300, -0.100]" in text
        and "after 9" not in text
    )
    empty = search.answer("r", "failed", "no device", None)
    _valid("search", empty)
    assert "no scheme was measured" in search.text(empty)


@pytest.mark.parametrize(
    "words, says", [(["--strategy", "magic"], "magic"), (["--range", "5", "x"], "from 0 to 65535")]
)
def test_search_refuses(capsys, words, says):
    assert main(["search", *words]) == 2
    assert says in capsys.readouterr().err
