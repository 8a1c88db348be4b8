"""Where something else than a plain file lies in the place of a run's file nothing waits, nothing is read or
written elsewhere, and every other run is served."""

import os
import shutil
import tracemalloc

import odd_files
import pytest
from make_runs import make

from fusescope.core.errors import RunError
from fusescope.jobs import submit
from fusescope.store import files, folder, library, profile, transfer
from fusescope.store.bounded import plain

pytestmark = pytest.mark.timeout(120)  # of a pipe that is opened: it waits for ever
KINDS = list(odd_files.kinds(None))


@pytest.fixture
def away(tmp_path):
    found = odd_files.outside(tmp_path)
    yield found
    assert odd_files.untouched(found)


@pytest.fixture
def two(profiles):
    """A run for odd files, with an artifact, and a sound one."""
    make(profiles, 2, 4)
    odd, sound = sorted(profiles.iterdir())
    (odd / "artifacts").mkdir()
    (odd / "artifacts" / "note.txt").write_text("a note")
    return odd, sound


def _read_all(path):
    """Everything that reads a run: each an answer, or a RunError of one line."""
    said = {}
    for name, step in odd_files.readers(path, path.parent.parent / "bundle.zip").items():
        try:
            said[name] = step()
        except RunError as error:
            said[name] = str(error)
            assert said[name] and "\n" not in said[name]
    return said


@pytest.mark.sample(9, "results.jsonl-a pipe")
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", odd_files.PLACES)
def test_in_the_place_of_a_file(two, away, place, kind):
    odd, sound = two
    odd_files.put(odd / place, odd_files.kinds(away)[kind])
    said = _read_all(odd)
    assert "elsewhere" not in str(said)
    assert {run.id for run in library.runs()[0]} | {i for i, _ in library.broken()} == {odd.name, sound.name}
    assert len(folder.records(sound)) == 4 and (library.records()["run"] == sound.name).sum() == 4
    if place == "run.json" and kind != "a dangling link":
        ((name, why),) = library.broken()
        assert name == odd.name and "cannot be read" in why
    try:
        folder.Writer(odd).close()  # what resumes a run
    except RunError as error:
        assert "\n" not in str(error)
    transfer.delete(odd.name)
    assert not odd.exists() and [run.id for run in library.runs()[0]] == [sound.name]


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", odd_files.AROUND)
def test_next_to_the_runs(two, away, profiles, place, kind):
    odd_files.put(profiles / place, odd_files.kinds(away)[kind])
    for _ in range(2):
        assert library.runs()[1] == 2 and not library.broken() and len(library.records()) == 8
    try:
        assert folder.read(folder.create("bench", {"op": "add"})).status in ("queued", "interrupted")
    except RunError as error:
        assert place == ".live" and "\n" not in str(error)


def test_a_link_in_the_place_of_a_run_is_a_row_and_only_the_link_is_deleted(two, tmp_path):
    odd, sound = two
    moved = tmp_path / odd.name
    shutil.move(odd, moved)
    odd.symlink_to(moved)
    ((name, why),) = library.broken()
    assert name == odd.name and "is a symbolic link, no plain folder" in why
    assert [run.id for run in library.runs()[0]] == [sound.name]
    transfer.delete(odd.name)
    assert not os.path.lexists(odd) and (moved / "run.json").is_file() and not library.broken()


@pytest.mark.parametrize("kind", [k for k in KINDS if "folder" not in k])
def test_the_folder_of_runs_itself(tmp_path, away, monkeypatch, kind):
    home = tmp_path / "odd"
    odd_files.put(home, odd_files.kinds(away)[kind])
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(home))
    if kind == "a dangling link":
        assert library.runs() == ([], 0)
        return
    with pytest.raises(RunError, match="cannot be read"):
        library.runs()
    with pytest.raises(RunError):
        folder.create("bench", {"op": "add"})


def test_names_that_are_no_text(two, tmp_path):
    odd, sound = two
    for name in odd_files.NAMES:
        odd_files.named(odd, name)
    odd_files.named(odd.parent, b"20260101-000000-bench-\xff0000a/run.json")
    odd_files.named(odd.parent, b".live/\xff")
    assert [p.name for p in plain.files(odd)] == ["note.txt", "notes.json", "results.jsonl", "run.json"]
    assert profile.names(odd) == []
    _read_all(odd)
    assert {run.id for run in library.runs()[0]} == {odd.name, sound.name} and not library.broken()
    copy = transfer.load(transfer.export(odd.name, tmp_path))
    assert len(folder.records(library.find(copy))) == 4
    with pytest.raises(RunError, match="is not a run id"):
        library.find("20260101-000000-bench-\udcff0000a")


def test_a_profiles_folder_whose_name_is_no_text(tmp_path, monkeypatch):
    home = tmp_path / "\udcff"
    make(home, 2, 4)
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(home))
    assert library.runs()[1] == 2
    for read in (library.records, lambda: library.records(run=library.runs()[0][0].id)):
        try:
            assert len(read())
        except RunError as error:
            assert "no UTF-8" in str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_the_queue_deletes_markers_of_runs_alone(two, away, profiles, kind):
    odd_files.put(profiles / ".live", odd_files.kinds(away)[kind])
    assert submit.queue() == []
    odd_files.put(profiles / ".live", lambda path: path.mkdir())
    for name in ("file", f"{two[0].name}.old"):
        (profiles / ".live" / name).touch()
    (profiles / ".live" / two[0].name).mkdir()  # of a run that has ended
    (profiles / ".live" / two[1].name).touch()
    assert submit.queue() == []
    assert len(list((profiles / ".live").iterdir())) == 3


def test_a_hard_link_is_a_plain_file(two, tmp_path):
    odd, _ = two
    os.link(odd / "results.jsonl", tmp_path / "backup")
    assert len(folder.records(odd)) == 4 and not library.broken()


def test_what_grows_without_end_is_read_up_to_a_limit(two):
    odd, sound = two
    for name in ("run.json", "notes.json", "results.jsonl", "samples.jsonl"):
        with open(odd / name, "ab") as file:
            file.truncate(1 << 40)  # a hole: it takes no place on the disk
    for read in (folder.read, folder.records, folder.samples):
        with pytest.raises(RunError, match="larger than"):
            read(odd)
    with pytest.raises(RunError, match="larger than"):
        files.contents(sound.parent / odd.name / "results.jsonl")
    assert [run.id for run in library.runs()[0]] == [sound.name]


@pytest.mark.parametrize("kind", KINDS)
def test_an_artifact_is_written_to_plain_files_in_the_run_alone(two, away, kind):
    odd, _ = two
    odd_files.put(odd / "artifacts" / "odd", odd_files.kinds(away)[kind])
    odd_files.put(odd / "artifacts" / "inner", odd_files.kinds(away)["a link to a folder"])
    writer = folder.Writer(odd)
    try:
        writer.artifact("sound").write_text("x")
        with pytest.raises(ValueError, match="must be under artifacts"):
            writer.artifact("inner/new")
        if kind not in ("a folder", "a link to itself"):
            with pytest.raises((ValueError, RunError), match=r"must be under artifacts|is no plain file"):
                writer.artifact("odd")
    finally:
        writer.close()


def test_json_of_very_many_values_is_refused_before_it_takes_memory(two):
    odd, sound = two
    odd.joinpath("run.json").write_bytes(b'{"a":[' + b"[]," * 5_000_000 + b"0]}")
    tracemalloc.start()
    try:
        ((name, _),) = library.broken()
        assert name == odd.name and tracemalloc.get_traced_memory()[1] < 64 << 20  # of a file of 14 MiB
    finally:
        tracemalloc.stop()
    assert [run.id for run in library.runs()[0]] == [sound.name]
