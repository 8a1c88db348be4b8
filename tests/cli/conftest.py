"""Calling the command line in this process, and holding its JSON against the schemas that ship with it."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import dataclass

import pytest

from fusescope.cli import main
from fusescope.core.paths import ROOT

SCHEMAS = ROOT / "backend" / "fusescope" / "schemas"


@dataclass
class Answer:
    """What a verb did: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def data(self):
        return json.loads(self.out)


@pytest.fixture
def call(capsys):
    """call("mask", "causal", "--seq", "8") -> Answer."""

    def run(*words: str) -> Answer:
        capsys.readouterr()
        code = main([str(w) for w in words])
        got = capsys.readouterr()
        return Answer(code, got.out, got.err)

    return run


@pytest.fixture
def in_this_process(monkeypatch):
    """Jobs that verbs start run here, where torch and transformers are imported already."""
    from fusescope.cli import follow
    from fusescope.jobs import kinds
    from fusescope.store import folder, library

    def submitted(kind, spec, title=""):
        writer = folder.Writer(folder.create(kind, spec, title=title))
        with contextlib.closing(writer):
            kinds.load(kind).run(spec, writer)
            writer.state("done")
        return writer.path.name

    monkeypatch.setattr(follow, "submitted", submitted)
    monkeypatch.setattr(follow, "follow", lambda run_id: folder.read(library.find(run_id)))


@pytest.fixture
def valid():
    """valid("bench", data): raises where data does not have the form of that schema."""
    jsonschema = pytest.importorskip("jsonschema")
    from referencing import Registry, Resource

    contents = [json.loads(p.read_text()) for p in sorted(SCHEMAS.glob("*.json"))]
    registry = Registry().with_resources([(c["$id"], Resource.from_contents(c)) for c in contents])
    known = {c["$id"]: c for c in contents}

    def check(name: str, data) -> None:
        jsonschema.Draft202012Validator(known[f"{name}.json"], registry=registry).validate(data)

    return check


@pytest.fixture
def refused(call):
    """refused(words…) -> the one sentence of a command that was given bad arguments; nothing on standard
    output, exit code 2."""

    def run(*words: str) -> str:
        got = call(*words)
        assert got.code == 2, got
        assert got.out == "" and got.err.startswith("error: ") and got.err.count("\n") == 1, got
        return got.err

    return run


@pytest.fixture
def small_project(tmp_path, monkeypatch):
    """A copy of the kernels' common files and one family, with a build folder of its own; the path of its
    cuda/."""
    cuda = tmp_path / "cuda"
    for name in ("common", "add"):
        shutil.copytree(ROOT / "cuda" / name, cuda / name)
    monkeypatch.setenv("FUSESCOPE_CUDA", str(cuda))
    monkeypatch.setenv("FUSESCOPE_BUILD", str(tmp_path / "build"))
    return cuda
