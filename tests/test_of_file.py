"""What is kept of a file is that of the file as it is now."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fusescope.core import sources
from fusescope.core.kept import of_file


def _age(path, seconds=60):
    """As if last written a while ago; only the time of the change of status stays, which nobody sets."""
    then = time.time_ns() - seconds * 1_000_000_000
    os.utime(path, ns=(then, then))


@pytest.fixture
def old_file(tmp_path, monkeypatch):
    """A file and its reader, which counts; two seconds are over at once."""
    monkeypatch.setattr(of_file, "_FRESH_NS", 0)
    path, reads = tmp_path / "a.cu", []
    path.write_text("one")

    def read(file):
        reads.append(file)
        return Path(file).read_text()

    return path, read, reads


def test_a_file_that_stays_is_read_once(old_file):
    path, read, reads = old_file
    assert [of_file.kept(str(path), read) for _ in range(3)] == ["one"] * 3 and len(reads) == 1


def test_another_content_of_the_same_length_and_time_is_seen(old_file):
    """An editor that sets the time back: the time of the change of status tells."""
    path, read, _ = old_file
    _age(path)
    facts = path.stat()
    assert of_file.kept(str(path), read) == "one"
    time.sleep(0.02)
    path.write_text("two")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert of_file.kept(str(path), read) == "two"


def test_another_file_in_its_place_is_seen(old_file):
    path, read, _ = old_file
    assert of_file.kept(str(path), read) == "one"
    other = path.with_suffix(".new")
    other.write_text("two")
    os.replace(other, path)
    assert of_file.kept(str(path), read) == "two"


def test_two_readers_of_one_file_are_kept_apart(old_file):
    path, read, _ = old_file
    assert (of_file.kept(str(path), read), of_file.kept(str(path), _len_of)) == ("one", 3)


def _read_text(file):
    return Path(file).read_text()


def _len_of(file):
    return len(Path(file).read_text())


@pytest.mark.parametrize("age_s, second", [(0.0, "two"), (1.9, "two"), (2.1, "one")])
def test_a_file_just_written_is_read_each_time(tmp_path, monkeypatch, age_s, second):
    """Its next change may come within one step of the file system's clock and leave all facts as they are."""
    path = tmp_path / "a.cu"
    path.write_text("one")
    now = time.time_ns()
    changed = now - int(age_s * 1e9)
    facts = SimpleNamespace(st_dev=1, st_ino=2, st_size=3, st_mtime_ns=changed, st_ctime_ns=changed)
    monkeypatch.setattr(of_file, "time", SimpleNamespace(time_ns=lambda: now))
    monkeypatch.setattr(of_file, "os", SimpleNamespace(stat=lambda path: facts))
    assert of_file.kept(str(path), _read_text) == "one"
    path.write_text("two")
    assert of_file.kept(str(path), _read_text) == second


def test_what_the_reader_raises_is_raised_each_time(old_file):
    path, _, reads = old_file

    def fail(file):
        reads.append(file)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            of_file.kept(str(path), fail)
    assert len(reads) == 2
    with pytest.raises(OSError):
        of_file.kept(str(path.with_name("gone")), fail)


def test_a_changed_header_changes_the_hash_of_its_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(of_file, "_FRESH_NS", 0)
    kernel, header = tmp_path / "v1_x.cu", tmp_path / "h.cuh"
    kernel.write_text('// One.\n#include "h.cuh"\n')
    header.write_text("int a;\n")
    variant = sources.Variant("x", "v1_x", kernel, "One.", "cuda")
    before = variant.source_hash
    assert sources.source_closure(kernel) == sorted([kernel, header]) and variant.source_hash == before
    header.write_text('#include "i.cuh"\n')
    (tmp_path / "i.cuh").write_text("int b;\n")
    assert len(sources.source_closure(kernel)) == 3 and variant.source_hash != before
