"""What the documents name exists, and the examples of docs/extending.md are found and work."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fusescope
from fusescope import cli, masks, models, ops
from fusescope.core import sources
from fusescope.core.paths import ROOT

DOCUMENTS = sorted(
    [
        ROOT / name
        for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "profiles/README.md")
    ]
    + [*(ROOT / "docs").rglob("*.md"), *(ROOT / "cuda").rglob("*.md")]
)
EXTENDING = (ROOT / "docs" / "extending.md").read_text()
FILES = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", EXTENDING, re.MULTILINE | re.DOTALL))
WRITTEN_BY_SCRIPTS = {"docs/models-supported.md", "docs/wrong-kernels.md"}
MOST_WORDS = {
    "README.md": 350,
    "CONTRIBUTING.md": 310,
    "cuda/attention/NOTES.md": 1120,
    "docs/internals/measuring.md": 720,
    "docs/reliability.md": 630,
}
"""Of prose, outside tables and code; of any other document MOST. What does not fit may repeat another
document or a docstring."""
MOST = 570
TOPS = ("backend", "pages", "cuda", "docs", "scripts", "tests", "profiles", ".streamlit", ".ci")
ROOMS = ROOT / "backend" / "fusescope"


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def code(text: str) -> list[str]:
    """The words in backticks and the lines of blocks of commands."""
    fenced = re.findall(r"^```(?:sh.*)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)) + [
        line for block in fenced for line in block.splitlines()
    ]


def exists(path: str, document: Path) -> bool:
    """A path from the root, from the document's folder, or from a room; * and … stand for anything."""
    pattern = re.sub(r"[…<][^/]*", "*", path).rstrip("/")
    bases = (ROOT, document.parent, ROOMS, ROOMS / "ops" / "attention", ROOMS / "profiling", ROOMS / "jobs")
    return any(next(base.glob(pattern), None) is not None for base in bases if pattern)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_resolve(document):
    for text, target in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", document.read_text()):
        if not target.startswith(("http", "#")):
            assert (document.parent / target.partition("#")[0]).exists(), f"[{text}]({target})"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_paths_exist(document):
    created = {*FILES, "cuda/rms_norm/"}
    for word in code(document.read_text()):
        for path in re.findall(r"(?<![\w/.])(?:[\w.]+/)+[\w.*…<>-]*(?:\.\w+)?", word):
            first = path.split("/")[0]
            known = first in TOPS or (ROOMS / first).is_dir()
            if known and path not in created and "<" not in path:
                assert exists(path, document), f"{name(document)} names {path}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_modules_and_names_exist(document):
    """fusescope.a.b.c in the text is a module, or a name in one."""
    for dotted in re.findall(r"\bfusescope(?:\.[A-Za-z_]\w*)+", document.read_text()):
        module, rest = fusescope, dotted.split(".")[1:]
        if dotted.startswith("fusescope.egg") or "every_other" in dotted:
            continue
        for part in rest:
            if not hasattr(module, part):
                try:
                    importlib.import_module(f"{module.__name__}.{part}")
                except ModuleNotFoundError:
                    pytest.fail(f"{name(document)} names {dotted}")
            module = getattr(module, part)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_verbs_and_their_options_exist(document, capsys):
    from fusescope.cli import main

    known = [*cli.names(), "--version"]
    for line in code(document.read_text()):
        for command in re.findall(r"(?:^|\s)(?:python -m )?fusescope ([a-z][\w-]*|--version)([^|#]*)", line):
            verb, rest = command
            assert verb in known, f"{name(document)}: fusescope {verb}"
            words = rest.split()
            subject = [w for w in words[:1] if w in (*ops.names(), *models.names(), "diff", "list")]
            main([verb, *subject, "--help"])
            described = capsys.readouterr().out
            for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", rest):
                assert option in described, f"{name(document)}: fusescope {verb} {option}"


@pytest.mark.parametrize("family", sources.families())
def test_every_kernel_is_on_its_ladder(family):
    text = (ROOT / "cuda" / family / "README.md").read_text()
    ladder = re.search(r"^\| kernel .*?\n\n", text, re.MULTILINE | re.DOTALL)[0]
    found = {variant.name.partition(":")[0] for variant in sources.families()[family].variants}
    assert found == set(re.findall(r"^\| (\w+)", ladder, re.MULTILINE)) - {"kernel"}
    assert len(text.splitlines()) <= 80


def prose(text: str) -> list[str]:
    """The words outside tables and fences."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^\|.*$", "", text, flags=re.MULTILINE).split()


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if name(d) not in WRITTEN_BY_SCRIPTS], ids=name)
def test_documents_stay_short(document):
    assert len(prose(document.read_text())) <= MOST_WORDS.get(name(document), MOST)


def test_the_map_is_one_page():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 150


@pytest.fixture
def example(tmp_path, monkeypatch):
    """example(file, package): a Python file of the documentation, found as if it were in the package."""

    def add(file: str, package: str):
        (tmp_path / Path(file).name).write_text(FILES[file])
        monkeypatch.setattr(sys.modules[package], "__path__", [*sys.modules[package].__path__, str(tmp_path)])
        ops.load.cache_clear()

    yield add
    for module in [m for m in sys.modules if m.rpartition(".")[2] in ("every_other", "rms_norm")]:
        parent, _, leaf = module.rpartition(".")
        vars(sys.modules[parent]).pop(leaf, None)
        del sys.modules[module]
    ops.load.cache_clear()


def test_the_example_mask(example):
    example("backend/fusescope/masks/every_other.py", "fusescope.masks")
    assert "every_other" in masks.names()
    assert masks.parse("every_other:step=3").dense(7, 7).sum() == 3 * 3 + 2 * 4 + 8 - 8 + 0
    assert masks.load("every_other").dense(4, 4)[3].tolist() == [False, True, False, True]


def test_the_example_operator(example):
    import torch

    example("backend/fusescope/ops/dense/rms_norm.py", "fusescope.ops.dense")
    module = ops.load("rms_norm")
    assert "rms_norm" in ops.names()
    values = module.validate({"rows": 4, "cols": 64})
    for dtype, tolerance in module.TOLERANCE.items():
        inputs = module.inputs(values, dtype, "cpu", 0)
        close = {"atol": tolerance.absolute, "rtol": tolerance.relative}
        torch.testing.assert_close(
            ops.make("rms_norm", "eager", inputs)().double(), module.reference(inputs), **close
        )
    assert module.cost(values, "float16").bytes == 2 * 2 * 4 * 64


def test_the_example_model_family(example):
    """In a process of its own, whose list of families is not made yet."""
    package = "fusescope.models.families"
    example("backend/fusescope/models/families/deit.py", package)
    code = f"import {package} as f; f.__path__.append({sys.modules[package].__path__[-1]!r})"
    code += "; from fusescope import models; print(models.names()[-1], models.anatomy('deit-small')[0].count)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert out[0] == "deit-small" and int(out[1]) == pytest.approx(21.8e6, rel=0.01)


def test_the_example_chart():
    from fusescope.core.records import Record, Time, Times

    scope: dict = {}
    exec(FILES["backend/fusescope/charts/bench/first_call.py"], scope)
    times = Times(first=3.0, eager=Time(1, 1, 1, 9, True))
    record = Record("add", "v1", {"n": 4}, "float32", "cpu", "ok", time_ms=times)
    assert list(scope["bars"]([record]).data[0].y) == [3.0]
    assert not scope["bars"]([]).data


def test_the_example_page_is_found_and_drawn(profiles, tmp_path, monkeypatch):
    from streamlit.testing.v1 import AppTest

    from pages._ui.app import frame

    (tmp_path / "pages").mkdir()
    (tmp_path / "app.py").write_text("from pages._ui.app import frame\n")
    page = tmp_path / "pages" / "recent.py"
    page.write_text(FILES["pages/recent.py"])
    monkeypatch.setattr(frame, "ROOT", tmp_path)
    frame.pages.cache_clear()
    try:
        assert list(frame.pages()) == ["app", "recent"] and frame.title_of("recent") == "Recent"
        app = AppTest.from_file(str(tmp_path / "app.py"), default_timeout=60)
        app.run().switch_page("pages/recent.py").run()
        assert not app.exception and any("0 runs" in str(text.value) for text in app.markdown)
    finally:
        frame.pages.cache_clear()
