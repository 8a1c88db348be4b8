"""A run that came as a file is somebody else's: its mark stays, and what it names is run by nobody
unasked."""

import json

import pytest
from make_runs import make

from fusescope import cli
from fusescope.core.foreign import code
from fusescope.core.records import Run
from fusescope.jobs import submit
from fusescope.store import files, folder, library, transfer

TITLE = "\x1b]52;c;ZXZpbA==\x07\x9b2Jtitle\rover\u202e"


@pytest.fixture
def run(profiles, tmp_path):
    """A failed run that names a file of this machine, imported; that file notes when it is executed."""
    make(profiles, 1, 3)
    (path,) = profiles.glob("2*")
    own = tmp_path / "own.py"
    own.write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\ndef f(*a): pass\n")
    data = files.read_json(path / "run.json")
    data["spec"] |= {"impls": ["eager", f"{own}:f"], "cases": [{"n": 4, "mask": "file:~/mask.npy"}]}
    files.write_json(path / "run.json", data | {"status": "failed", "reason": TITLE})
    folder.write_notes(path, title=TITLE, tags=[TITLE], notes=TITLE)
    bundle = transfer.export(path.name, tmp_path)
    transfer.delete(path.name)
    return library.find(transfer.load(bundle))


def test_the_mark_stays_through_export_and_import(run, tmp_path):
    assert folder.read(run).imported and library.runs()[0][0].imported
    bundle = transfer.export(run.name, tmp_path / "again.zip")
    transfer.delete(run.name)
    assert folder.read(library.find(transfer.load(bundle))).imported


def test_a_run_of_this_machine_carries_no_mark(profiles):
    assert not folder.read(folder.create("bench", {"op": "add"})).imported


def test_resuming_names_the_files_and_executes_none(run, tmp_path, monkeypatch, capsys):
    started = []
    monkeypatch.setattr(submit, "launch", lambda *given: started.append(given))
    with pytest.raises(code.Untrusted) as refused:
        submit.resume(run.name)
    assert refused.value.files == [f"{tmp_path / 'own.py'}:f", "file:~/mask.npy"]
    assert cli.main(["runs", "resume", run.name]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "own.py:f" in said and "--trust" in said
    assert not started and folder.read(run).status == "failed"
    assert not (tmp_path / "executed").exists()


def test_trust_resumes(run, monkeypatch):
    started = []
    monkeypatch.setattr(submit, "_start", lambda path, lock: started.append(path))
    submit.resume(run.name, trust=True)
    assert started == [run]


def test_a_bundle_brings_no_code_that_runs(run, monkeypatch):
    """Not even a trusted run executes what lies in a run folder."""
    (run / "artifacts").mkdir(exist_ok=True)
    (run / "artifacts" / "evil.py").write_text("def f(*a): pass\n")
    data = files.read_json(run / "run.json")
    data["spec"]["impls"] = [f"{run}/artifacts/evil.py:f"]
    files.write_json(run / "run.json", data)
    with pytest.raises(ValueError, match="run folders, which bring no code"):
        submit.resume(run.name, trust=True)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"impls": ["eager", "v1", "x.py:f"]}, ["x.py:f"]),
        ({"op": "model:bert-base", "cases": [{"mask": "bigbird:window=64,seed=1"}], "dtype": "float16"}, []),
        ({"checkpoint": "/data/model", "input": {"text": "~/a.txt", "tokenizer": "./t"}}, None),
        ({"cases": [{"mask": "file:m.npy"}], "deep": [[{"a": ["..\\x"]}]]}, ["file:m.npy", "..\\x"]),
    ],
)
def test_paths_are_found_wherever_a_spec_has_them(spec, named):
    found = code.named(spec)
    assert found == named if named is not None else set(found) == {"/data/model", "~/a.txt", "./t"}
    own = Run("20260101-000000-bench-aaaaaa", "bench", spec, "failed")
    code.check(own)  # a run of this machine's own may name what it likes


@pytest.mark.parametrize("words", [["list"], ["show"], ["resume"], ["tag", "--add", "x"], ["delete"]])
def test_a_terminal_gets_no_control_characters(run, words, capsys):
    verb, *rest = words
    cli.main(["runs", verb, *([run.name] if verb != "list" else []), *rest])
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert (
            not any(c < " " and c not in "\n\t" for c in text) and "\x9b" not in text and "\u202e" not in text
        )


def test_json_of_a_run_is_plain_ascii(run, capsys):
    assert cli.main(["runs", "show", run.name, "--json"]) == 0
    text = capsys.readouterr().out
    assert text.isascii() and json.loads(text)["run"]["imported"] is True


def test_importing_says_what_became_of_the_run(profiles, tmp_path, capsys):
    path = folder.create("bench", {"op": "add"})
    writer = folder.Writer(path)
    writer.state("running")
    bundle = transfer.export(path.name, tmp_path)
    writer.close()
    for words in (["import", str(bundle)], ["runs", "import", str(bundle)]):
        assert cli.main(words) == 0
        said = capsys.readouterr().out
        assert "interrupted" in said and "exported before it was finished" in said
