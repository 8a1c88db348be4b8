"""The verb translate."""

import json
import subprocess
import sys

import pytest

from fusescope.cli import main
from fusescope.core.paths import ROOT
from fusescope.search import encoding


def _call(capsys, *words):
    code = main(["translate", *words])
    return code, *capsys.readouterr()


def _valid(data):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(
        json.loads((ROOT / "backend" / "fusescope" / "schemas" / "translate.json").read_text())
    ).validate(data)


def test_for_people(capsys):
    code, out, err = _call(capsys, "0011111010010110")
    assert code == 0 and err == "" and out.splitlines()[0] == "16022 0 3 2 6 9 10 13 14"
    assert "1-5        fused  QKV bias → head split → scores GEMM with scale → mask → softmax\n" in out
    assert (
        "canonical   0100000101101001  16745\ncomplement  0100000101101001  16745\n" in out
        and "hand-written" not in out
    )
    assert _call(capsys, "16022")[1] == out


def test_with_the_attention(capsys):
    _, out, _ = _call(capsys, "1011111010010110")
    assert (
        "2-7        hand-written attention  head split → " in out
        and "canonical   1010000001101001  41065" in out
    )
    assert "nothing is fused with it" in out


@pytest.mark.parametrize("code", ["6826", "1365", "16022", "21845", "0", "65535", "48790", "32768", "49151"])
def test_json(capsys, code):
    status, out, err = _call(capsys, code, "--json")
    data = json.loads(out)
    _valid(data)
    assert (
        status == 0 and err == "" and data["line"] == encoding.translate(code) and data["value"] == int(code)
    )
    assert [i for p in data["parts"] for i in p["operators"]] == list(range(15))
    assert any(p["attention"] for p in data["parts"]) == data["attention"] == (int(code) >= 32768)
    again = json.loads(_call(capsys, data["complement"]["bits"], "--json")[1])
    assert again["canonical"] == data["canonical"] and again["parts"] == data["parts"]


@pytest.mark.parametrize("words", [("011",), ("65536",), ("-1",), ("x",), ("",)])
def test_no_code(capsys, words):
    code, out, err = _call(capsys, *words)
    assert code == 2 and out == "" and err.count("\n") == 1
    assert err.startswith(
        "error: a code is exactly 16 characters of 0 and 1, or a decimal value from 0 to 65535, not "
    )


def test_torch_is_not_imported():
    """Neither by the verb nor by any module of the room: the app's process imports these."""
    code = (
        "import sys\n"
        "from fusescope.cli import main\n"
        "assert main(['translate', '6826']) == 0\n"
        "import fusescope.search.scheme.unfused\n"
        "print(sorted({'torch', 'transformers', 'pandas', 'xgboost'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
