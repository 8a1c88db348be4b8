"""Exported runs that somebody changed: members with names, kinds, links and sizes that no export writes, and
damaged archives."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import random
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import wrong_types
from make_runs import record

from fusescope.store import folder, library, transfer
from tests.faults.case import TryOne, folders, hold, refused_or_read
from tests.faults.classes.torn_bytes import damage
from tests.faults.commands import call

TITLE = "Hostile bundles"
LEAST = 500
SHARE = 0.8
SECRET = "nobody else may read this"

NAMES = (
    *("run.json", "notes.json", "results.jsonl", "samples.jsonl", "log.txt", "results.jsonl.gz"),
    *("artifacts/kernels.parquet", "artifacts/summary.json", "artifacts/trace.json.gz", "artifacts/own.py"),
    *(
        "../escaped",
        "../../escaped",
        "/tmp/fusescope-escaped",
        "artifacts/../../escaped",
        "artifacts/a/../../../b",
    ),
    *(".bashrc", "artifacts/.hidden", "artifacts/-rf", "artifacts/a\\..\\b", "artifacts/<b>.html", "cancel"),
    *("artifacts/" + "d/" * 30 + "x", "artifacts/" + "n" * 300, "artifacts/a\nb", "artifacts/\x1b[2J", ""),
    *("artifacts", "artifacts/a", "artifacts/a/b", ".live/x", "recorded/x", ".new-x/run.json"),
)


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    with folders(at) as home:
        (at / "secret").write_text(SECRET)
        mark = at / "executed"
        members = _sound(mark)
        ours = {p.name for p in at.iterdir()} | {"bundle.tar.gz", "bundle.zip", "again.zip"}

        def try_one(seed: int) -> int:
            rng = random.Random(seed)
            file = at / rng.choice(("bundle.tar.gz", "bundle.zip"))
            (_tar if file.suffix == ".gz" else _zip)(file, _changed(members, rng), rng, at / "secret")
            if rng.random() < 0.3:
                file.write_bytes(damage(file.read_bytes(), rng))
            before = set(os.listdir(home))
            run_id = None
            with refused_or_read():
                run_id = transfer.load(file)
            new = set(os.listdir(home)) - before - {".index", ".live"}
            hold(new == ({run_id} if run_id else set()), "state", f"seed {seed}: left {new}, run {run_id}")
            if run_id:
                _look(home / run_id, at)
                transfer.delete(run_id)
            if seed % 10 == 0:
                code, _, _ = call("import", file)
                hold(code in (0, 1, 2), "words", f"exit code {code}")
                for run in library.runs()[0]:
                    transfer.delete(run.id)
            hold(not mark.exists(), "code", f"seed {seed}: code of a bundle ran")
            outside = {p.name for p in at.iterdir()} - ours - {"said", "errors", "runtime"}
            escaped = [p for p in (Path("/tmp/fusescope-escaped"), at.parent / "escaped") if p.exists()]
            hold(not outside and not escaped, "outside", f"seed {seed}: {outside} {escaped}")
            return 1

        yield try_one


def _sound(mark: Path) -> dict[str, bytes]:
    run = {k: v for k, v in wrong_types.RUN.items() if k != "contents"}

    class Runs:
        def __reduce__(self):
            return os.mkdir, (str(mark),)

    lines = "".join(json.dumps(record("add", n, "eager")) + "\n" for n in range(4))
    return {
        "run.json": json.dumps(run).encode(),
        "notes.json": json.dumps(wrong_types.NOTE).encode(),
        "results.jsonl": lines.encode(),
        "samples.jsonl": (json.dumps(wrong_types.LINE) + "\n").encode(),
        "log.txt": b"a line\n",
        "artifacts/memory.pickle": pickle.dumps({"segments": [Runs()]}),
        "artifacts/own.py": f"import os\nos.mkdir({str(mark)!r})\n".encode(),
    }


def _changed(members: dict[str, bytes], rng: random.Random) -> list[tuple[str, bytes, str]]:
    """(name, content, kind) of each member, a few of them not as an export writes them."""
    found = [(name, data, "file") for name, data in members.items()]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        change = rng.randrange(4)
        n = rng.randrange(len(found))
        name, data, kind = found[n]
        if change == 0:
            found[n] = name, damage(data, rng), kind
        elif change == 1:
            found.append((rng.choice(NAMES), rng.choice((b"", b"x" * 100, bytes(3 << 20))), "file"))
        elif change == 2:
            found.append((rng.choice(NAMES), b"", rng.choice(("link", "hard", "pipe", "device", "folder"))))
        else:
            del found[n]
            found = found or [("run.json", b"{}", "file")]
    rng.shuffle(found)
    return found


def _tar(file: Path, members: list[tuple[str, bytes, str]], rng: random.Random, secret: Path) -> None:
    kinds = {
        "file": tarfile.REGTYPE,
        "link": tarfile.SYMTYPE,
        "hard": tarfile.LNKTYPE,
        "pipe": tarfile.FIFOTYPE,
    }
    kinds |= {"device": tarfile.CHRTYPE, "folder": tarfile.DIRTYPE}
    top = rng.choice(("r/", "r/", "r/", "", "/", "../"))
    with tarfile.open(file, "w:gz", format=rng.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))) as archive:
        for name, data, kind in members:
            info = tarfile.TarInfo(top + name)
            info.type, info.size, info.linkname = kinds[kind], len(data), str(secret)
            info.mode = rng.choice((0o644, 0o4777, 0))
            with contextlib.suppress(ValueError):
                archive.addfile(info, io.BytesIO(data))


def _zip(file: Path, members: list[tuple[str, bytes, str]], rng: random.Random, secret: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, kind in members:
            info = zipfile.ZipInfo(f"r/{name}" if name else "r/x")
            if kind == "link":
                info.external_attr, data = (stat.S_IFLNK | 0o777) << 16, str(secret).encode()
            archive.writestr(info, data)


def _look(path: Path, at: Path) -> None:
    """An imported run: marked, readable or refused, with nothing of elsewhere in it."""
    for file in path.rglob("*"):
        hold(
            not file.is_symlink() and (file.is_file() or file.is_dir()), "outside", f"{file} is no plain file"
        )
        if file.is_file():
            hold(SECRET.encode() not in file.read_bytes(), "outside", f"{file} holds what is elsewhere")
            hold(not file.stat().st_mode & 0o7000, "outside", f"{file} has set-id bits")
    with refused_or_read():
        hold(folder.read(path).imported, "state", "an import without its mark")
        folder.records(path), folder.samples(path)
    with refused_or_read():
        transfer.export(path.name, at / "again.zip")
