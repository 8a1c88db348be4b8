"""Export and import keep a run whole; a hostile file leaves nothing behind; deleting spares what lives and
what is recorded."""

import dataclasses
import io
import json
import os
import stat
import tarfile
import zipfile
import zlib

import pytest
from make_runs import make

from fusescope.core.errors import RunError
from fusescope.store import folder, library, transfer

RUN_JSON = json.dumps(
    {"schema": 1, "id": "20260101-000000-bench-abcdef", "kind": "bench", "spec": {}, "status": "done"}
).encode()


@pytest.fixture
def run(profiles):
    make(profiles, 1, 12)
    (path,) = profiles.iterdir()
    (path / "artifacts/generated").mkdir(parents=True)
    (path / "artifacts/trace.json.gz").write_bytes(os.urandom(5000))
    (path / "artifacts/generated/scheme.py").write_text("print('made')")
    (path / "cancel").touch()
    (path / ".reserve").write_bytes(b"x")
    os.symlink("/etc/passwd", path / "artifacts/link")
    return path


def files_of(path):
    return {
        str(p.relative_to(path)): p.read_bytes()
        for p in path.rglob("*")
        if p.is_file() and not p.is_symlink()
    }


@pytest.mark.parametrize("name", [None, "copy.zip", "copy.fsrun.tar.gz"])
def test_a_run_survives_export_delete_and_import(run, tmp_path, name):
    before, whole = folder.read(run), files_of(run)
    target = transfer.export(run.name, tmp_path / name if name else tmp_path)
    assert target.name == (name or f"{run.name}.fsrun.tar.gz")
    transfer.delete(run.name)
    assert not run.exists()
    assert transfer.load(target) == run.name
    assert folder.read(run) == dataclasses.replace(before, imported=True) and len(folder.records(run)) == 12
    after = files_of(run)
    assert set(whole) - set(after) == {"cancel", ".reserve"}
    assert {k: v for k, v in after.items() if k != "run.json"} == {
        k: whole[k] for k in after if k != "run.json"
    }
    assert not (run / "artifacts/link").is_symlink()


def test_an_import_never_overwrites_a_run(run, tmp_path):
    target = transfer.export(run.name, tmp_path)
    second = transfer.load(target)
    assert second != run.name and folder.read(library.find(second)).id == second
    assert library.runs()[1] == 2


def test_a_run_exported_while_it_ran_is_interrupted(profiles, tmp_path):
    path = folder.create("bench", {"op": "add"})
    writer = folder.Writer(path)
    writer.state("running")
    target = transfer.export(path.name, tmp_path)
    with pytest.raises(ValueError, match="cancel it first"):
        transfer.delete(path.name)
    writer.state("done")
    writer.close()
    assert folder.read(library.find(transfer.load(target))).status == "interrupted"


def test_what_cannot_be_exported_or_deleted(run, tmp_path):
    with pytest.raises(RunError, match="cannot be written"):
        transfer.export(run.name, tmp_path / "no/such/folder.zip")
    (run.parent / "recorded").mkdir()
    os.rename(run, run.parent / "recorded" / run.name)
    with pytest.raises(RunError, match="recorded run and read-only"):
        transfer.delete(run.name)
    assert transfer.export(run.name, tmp_path).exists()


def tar(tmp_path, *members, name="hostile.fsrun.tar.gz"):
    """An archive of (name, content) pairs or TarInfo objects."""
    target = tmp_path / name
    with tarfile.open(target, "w:gz") as t:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                t.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                t.addfile(info, io.BytesIO(member[1]))
    return target


def special(name, kind, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def special_sized(name, kind, size):
    info = special(name, kind)
    info.size = size
    return info


GOOD = ("r/run.json", RUN_JSON)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([GOOD, ("r/../../escaped", b"x")], "is not a file inside one run folder"),
        ([GOOD, ("/tmp/escaped", b"x")], "is not a file inside one run folder"),
        ([GOOD, ("escaped", b"x")], "is not a file inside one run folder"),
        ([GOOD, ("r/artifacts/a\\..\\b", b"x")], "is not a file inside one run folder"),
        ([GOOD, ("r/artifacts/" + "d/" * 20 + "x", b"x")], "is not a file inside one run folder"),
        ([GOOD, ("r/cancel", b"")], "has no place in a run folder"),
        ([GOOD, ("r/.git/hooks/post-checkout", b"x")], "has no place"),
        ([GOOD, ("r/artifacts/.bashrc", b"x")], "has no place"),
        ([GOOD, ("r/artifacts/-rf", b"x")], "has no place"),
        ([GOOD, ("r/artifacts/<script>.html", b"x")], "has no place"),
        ([GOOD, ("r/artifacts/" + "n" * 300, b"x")], "has no place"),
        ([GOOD, special("r/artifacts/l", tarfile.SYMTYPE, "/etc/passwd")], "link or a device"),
        ([GOOD, special("r/artifacts/h", tarfile.LNKTYPE, "r/run.json")], "link or a device"),
        ([GOOD, special("r/artifacts/f", tarfile.FIFOTYPE)], "link or a device"),
        ([GOOD, special("r/artifacts/c", tarfile.CHRTYPE)], "link or a device"),
        ([special_sized("x", tarfile.XHDTYPE, 1 << 17), GOOD], "extended header of more than"),
        ([special_sized("x", tarfile.GNUTYPE_LONGNAME, 1 << 20), GOOD], "extended header of more than"),
        ([GOOD, GOOD], "two files named run.json"),
        ([GOOD, ("r/artifacts/a", b"x"), ("r/artifacts/a/b", b"x")], "no intact"),
        ([("r/log.txt", b"x")], "holds no run.json"),
        ([], "holds no run.json"),
        ([("r/run.json", b"[]")], "holds list"),
        ([("r/run.json", b"{torn")], "torn or not JSON"),
        ([("r/run.json", b'{"kind": "../x"}')], "no job kind is called"),
        (
            [("r/run.json", b'{"kind": "bench", "status": "done", "schema": 1}')],
            "not that of a run: .*spec|lacks what",
        ),
        ([("r/run.json", RUN_JSON.replace(b'"spec": {}', b'"spec": []'))], "not that of a run: spec"),
        ([("r/run.json", RUN_JSON.replace(b'"done"', b'"great"'))], "status must be queued, .*'great'"),
        ([("r/run.json", RUN_JSON.replace(b'"spec"', b'"created": "now", "spec"'))], "created"),
        ([GOOD, ("r/results.jsonl", b'{"op": 1}\n{"op": 2}\n')], "is not a record"),
        ([GOOD, ("r/artifacts/zeros", bytes(40 << 20))], "unpacks to more than"),
    ],
)
def test_hostile_archives_are_refused_and_leave_nothing(profiles, tmp_path, members, says):
    file = tar(tmp_path, *members)
    before = sorted(os.listdir(profiles))
    with pytest.raises((ValueError, RunError), match=says):
        transfer.load(file)
    assert sorted(os.listdir(profiles)) == before
    assert not (tmp_path / "escaped").exists() and not os.path.exists("/tmp/escaped")


def test_a_newer_run_says_to_update(profiles, tmp_path):
    with pytest.raises(RunError, match="newer version"):
        transfer.load(tar(tmp_path, ("r/run.json", RUN_JSON.replace(b'"schema": 1', b'"schema": 2'))))


def test_more_files_than_a_run_has(profiles, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "MAX_FILES", 5)
    with pytest.raises(ValueError, match="more than 5 files"):
        transfer.load(tar(tmp_path, GOOD, *((f"r/artifacts/{n}", b"") for n in range(6))))
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:  # folders count too
        for n in range(12):
            folder_of = tarfile.TarInfo(f"r/{n}")
            folder_of.type = tarfile.DIRTYPE
            archive.addfile(folder_of)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for n in range(12):
            archive.writestr(f"r/{n}/", b"")
    for name in ("a.tar.gz", "a.zip"):
        with pytest.raises(ValueError, match=f"{name}: more than 5 files"):
            transfer.load(tmp_path / name)


def test_zip_links_and_lying_sizes(profiles, tmp_path):
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as z:
        z.writestr("r/run.json", RUN_JSON)
        link = zipfile.ZipInfo("r/artifacts/l")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        z.writestr(link, "/etc/passwd")
    with pytest.raises(ValueError, match="link or a device"):
        transfer.load(file)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("r/run.json", RUN_JSON)
        z.writestr("r/artifacts/zeros", bytes(40 << 20))
    with pytest.raises(ValueError, match="unpacks to more than"):
        transfer.load(file)
    assert os.listdir(profiles) == []


@pytest.mark.parametrize(
    "content", [b"", b"not an archive", b"PK\x03\x04 torn", zlib.compress(b"x"), os.urandom(300)]
)
def test_what_is_no_archive(profiles, tmp_path, content):
    file = tmp_path / "x.fsrun.tar.gz"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="no intact"):
        transfer.load(file)
    assert os.listdir(profiles) == []


def test_a_cut_archive(run, tmp_path):
    file = transfer.export(run.name, tmp_path)
    whole = file.read_bytes()
    for size in (30, len(whole) // 2, len(whole) - 9):
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"no intact|holds no run\.json"):
            transfer.load(file)
    flipped = bytearray(whole)
    flipped[-6] ^= 1  # the check sum
    file.write_bytes(flipped)
    with pytest.raises(ValueError, match="no intact"):
        transfer.load(file)
    with pytest.raises(ValueError, match="there is no file"):
        transfer.load(tmp_path / "missing.tar.gz")


def test_nothing_is_unpickled_on_the_way(profiles, tmp_path):
    bomb = b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR."
    run_id = transfer.load(tar(tmp_path, GOOD, ("r/artifacts/memory.pickle", bomb)))
    folder.read(library.find(run_id)), folder.records(library.find(run_id)), library.records()
    assert not (tmp_path / "ran").exists()
