"""A small project of kernels (the family "add") in a folder of its own, for tests that break it on
purpose."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fusescope.core import paths
from fusescope.core.machine import toolchain
from fusescope.kernels import plan, report
from fusescope.kernels.build import build

GPU_ARCHS = ("sm_80",) if toolchain.detect().nvcc else ()
"""What the small project's CUDA kernels are compiled for beforehand."""


class Project:
    """cuda/ and the build cache below ``base``; ``base`` has a blank in its name, as home folders may."""

    def __init__(self, base: Path, torch_server: TorchServer | None = None):
        self.torch_server = torch_server
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

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Make these folders this process's."""
        patch.setenv("FUSESCOPE_CUDA", str(self.cuda))
        patch.setenv("FUSESCOPE_BUILD", str(self.build))

    def torch(self, code: str, **environment: str) -> subprocess.CompletedProcess:
        """Run code in a new process with this project's folders, where torch is imported."""
        return self.torch_server.run(code, self.environment(**environment))

    def python(self, code: str, **environment: str) -> subprocess.CompletedProcess:
        """Run code in a fresh interpreter with this project's folders."""
        return subprocess.run(
            [sys.executable, "-c", code],
            cwd=paths.ROOT,
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
                "PYTHONPATH": str(paths.IMPORT_ROOT),
            }
            | more
        )


@pytest.fixture(scope="session")
def objects() -> Path:
    """The build folder of the small project's objects: kept between test runs, shared by
    test processes, and never a test's own folder."""
    folder = paths.build_cache() / "tests"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUSESCOPE_BUILD", str(folder))
        patch.setenv("FUSESCOPE_BUILD_GB", "0.05")
        result = build(GPU_ARCHS, families=("add",), log=lambda text: None)
        assert result.ok, result.causes
        return report.folder_of(toolchain.detect())


def _take(made: Project, objects: Path, units: tuple[str, ...]) -> None:
    """Put the small project's objects for some units into its own build folder."""
    folder = made.build / objects.name
    folder.mkdir(parents=True, exist_ok=True)
    for item in plan.objects(toolchain.detect(), units, GPU_ARCHS, ("add",)):
        for file in objects.glob(f"{Path(item.file).stem}.*"):
            shutil.copy2(file, folder)


@pytest.fixture(scope="session")
def built_once(tmp_path_factory, objects) -> Path:
    """The CPU library of the small project, built once; tests work on copies."""
    base = tmp_path_factory.mktemp("small project")
    shutil.copytree(paths.ROOT / "cuda" / "common", base / "cuda" / "common")
    shutil.copytree(paths.ROOT / "cuda" / "add", base / "cuda" / "add")
    made = Project(base)
    _take(made, objects, ("cpu",))
    with pytest.MonkeyPatch.context() as patch:
        made.use(patch)
        assert build(units=("cpu",), log=made.log).ok, made.text
    return base


@pytest.fixture(scope="session")
def untouched(built_once, torch_server) -> Project:
    """The small project itself, for tests that change nothing."""
    return Project(built_once, torch_server)


@pytest.fixture
def project(built_once, torch_server, tmp_path, monkeypatch) -> Project:
    """A copy of the small project with its objects, set as this process's sources and build folder."""
    base = tmp_path / "a project"
    shutil.copytree(built_once, base)
    made = Project(base, torch_server)
    made.use(monkeypatch)
    return made


@pytest.fixture
def gpu_project(project, objects) -> Project:
    """The same with the objects of its CUDA kernels for GPU_ARCHS."""
    _take(project, objects, ("cuda",))
    return project


@pytest.fixture(scope="session")
def torch_server():
    """Starts processes in which torch is imported already; started itself when first asked."""
    server = TorchServer()
    yield server
    server.close()


class TorchServer:
    """``run`` executes code in a fork of a process that has imported torch, and nothing of ours: as new as an
    interpreter of its own, two seconds earlier."""

    _LOOP = """
import gc, json, os, sys, traceback
import torch
gc.freeze()
for line in sys.stdin:
    code, cwd, environment, out, err = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        for fd, file in ((1, out), (2, err)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
        status = 0
        try:
            exec(code, {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""

    def __init__(self):
        self._process: subprocess.Popen | None = None

    def run(self, code: str, environment: dict[str, str]) -> subprocess.CompletedProcess:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._LOOP],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": str(paths.IMPORT_ROOT)},
            )
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            order = [code, str(paths.ROOT), environment, str(out), str(err)]
            print(json.dumps(order), file=self._process.stdin, flush=True)
            status = int(self._process.stdout.readline())
            return subprocess.CompletedProcess(code, status, out.read_text(), err.read_text())

    def close(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(10)
