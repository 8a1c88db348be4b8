"""Other users of the machine prepare the folder that all share: links, pipes, files and folders of theirs, in
any combination. By real processes of three users."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from other_user import ALICE, MALLORY, run_as
from test_shared_folder import AS_ALICE, HOSTILE

from tests.faults.case import TryOne, hold, variables

TITLE = "Other users on the machine"
LEAST = 30
SHARE = 0.8

_NAMES = (
    "GPU-0.lock",
    "GPU-0.queue",
    "cpu.lock",
    f"user-{ALICE}",
    "GPU-0.queue/1.waits",
    f"user-{ALICE}/warm",
)
_THINGS = (
    "os.symlink(f'{here}/alice/precious', at)",
    "os.symlink(f'{here}/alice', at)",
    "os.symlink(f'{here}/alice/new', at)",
    "os.symlink(at, at)",
    "os.mkfifo(at)",
    "os.mkdir(at, 0o700)",
    "os.mkdir(at); os.chmod(at, 0o777)",
    "os.mkdir(at); os.chmod(at, 0o1777)",
    "os.close(os.open(at, os.O_CREAT, 0))",
    "open(at, 'w').write('x' * 10000)",
)
_KEPT = ("precious", ".bashrc", f"{1:020d}-1-run.waits")


def missing() -> str | None:
    return None if os.getuid() == 0 else "other users' processes can be started by root only"


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    with tempfile.TemporaryDirectory(prefix="fusescope-users-") as name:
        base = Path(name)
        base.chmod(0o1777)
        home = base / "alice"
        own = {"FUSESCOPE_RUNTIME": str(base / "fusescope"), "XDG_CACHE_HOME": str(home)}
        with variables(**own, XDG_RUNTIME_DIR=None):

            def try_one(seed: int) -> int:
                for folder in (home, base / "fusescope"):
                    if folder.is_symlink() or folder.is_file():
                        folder.unlink()
                    shutil.rmtree(folder, ignore_errors=True)
                home.mkdir()
                for kept in _KEPT:
                    (home / kept).write_text("hers")
                    os.utime(home / kept, (1, 1))
                    os.chown(home / kept, ALICE, ALICE)
                os.chown(home, ALICE, ALICE)
                code = _prepared_by_mallory(random.Random(seed), seed)
                made = run_as(MALLORY, f"os.chdir({str(base)!r}); here = os.getcwd()\n{code}")
                hold(made.returncode == 0, "raw", f"the case itself failed: {made.stderr}\n{code}")
                _check(home, code)
                return 1

            yield try_one


def _prepared_by_mallory(rng: random.Random, seed: int) -> str:
    common = "def common(): os.mkdir('fusescope'); os.chmod('fusescope', 0o1777)\n"
    if seed < len(HOSTILE):
        return common + list(HOSTILE.values())[seed]
    lines = [common, "common()"]
    for _ in range(rng.randint(1, 4)):
        lines += [f"at = 'fusescope/{rng.choice(_NAMES)}'", "try:", f"    {rng.choice(_THINGS)}"]
        lines += ["except OSError:", "    pass"]
    return "\n".join(lines)


def _check(home: Path, code: str) -> None:
    hers = run_as(ALICE, AS_ALICE)
    hold(hers.returncode == 0, "raw", f"{hers.stderr[-800:]}\n{code}")
    place, run, _, owner, mode = json.loads(hers.stdout)
    hold((place, run, owner, mode) == (0, "hers", ALICE, 0o700), "in", f"{hers.stdout}\n{code}")
    for kept in _KEPT:
        there = (home / kept).is_file() and (home / kept).read_text() == "hers"
        hold(there, "lost", f"{kept} of another user was changed\n{code}")
    hold(not (home / "new").exists(), "outside", f"a file was made through a link\n{code}")
