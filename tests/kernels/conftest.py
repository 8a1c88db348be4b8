"""A small project of kernels (the family "add") in a folder of its own, for tests that break it on
purpose."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Project:
    """cuda/ and the build cache below ``base``; ``base`` has a blank in its name, as home folders may."""

    def __init__(self, base: Path):
        self.cuda, self.build, self.bin = base / "cuda", base / "build", base / "bin"
        self.add = self.cuda / "add"
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def edit(self, path: Path, old: str, new: str) -> None:
        """Replace text and put the time stamp back: an edit that no build by modification time would see."""
        before = path.stat()
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def program(self, name: str, script: str) -> Path:
        """A shell script in ``bin``, as a compiler of another version would lie on PATH."""
        self.bin.mkdir(exist_ok=True)
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def python(self, code: str, **environment: str) -> subprocess.CompletedProcess:
        """Run code in a fresh interpreter with this project's folders."""
        return subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            env=self.environment(**environment),
        )

    def environment(self, **more: str) -> dict[str, str]:
        return (
            os.environ
            | {
                "FUSESCOPE_CUDA": str(self.cuda),
                "FUSESCOPE_BUILD": str(self.build),
                "PYTHONPATH": str(ROOT / "backend"),
            }
            | more
        )


@pytest.fixture(scope="session")
def built_once(tmp_path_factory) -> Path:
    """The CPU library of the small project, built once; tests work on copies."""
    base = tmp_path_factory.mktemp("small project")
    shutil.copytree(ROOT / "cuda" / "common", base / "cuda" / "common")
    shutil.copytree(ROOT / "cuda" / "add", base / "cuda" / "add")
    done = Project(base).python("from fusescope.kernels.build import build; assert build(units=('cpu',)).ok")
    assert done.returncode == 0, done.stdout + done.stderr
    return base


@pytest.fixture(scope="session")
def untouched(built_once) -> Project:
    """The small project itself, for tests that change nothing."""
    return Project(built_once)


@pytest.fixture
def project(built_once, tmp_path, monkeypatch) -> Project:
    """A copy of the small project with its objects, set as this process's sources and build folder."""
    base = tmp_path / "a project"
    shutil.copytree(built_once, base)
    made = Project(base)
    monkeypatch.setenv("FUSESCOPE_CUDA", str(made.cuda))
    monkeypatch.setenv("FUSESCOPE_BUILD", str(made.build))
    return made
