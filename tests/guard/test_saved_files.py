"""A file made for a download button outlives the drawings that end before the browser has fetched it."""

import time

import pytest
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileStorageError

from pages._ui.guard import saved_files


@pytest.fixture
def manager():
    return MediaFileManager(storage=saved_files.LastingFiles("/media"))


def _made(manager) -> str:
    deferred = manager.add_deferred(lambda: "bits", "text/plain", "1.2")
    return manager.execute_deferred(deferred).rpartition("/")[2]


def _drawings_end(manager) -> None:
    for _ in range(3):
        manager.remove_orphaned_files()


def test_a_saved_file_outlives_the_drawings_that_end(manager):
    name = _made(manager)
    _drawings_end(manager)
    assert manager._storage.get_file(name).content == b"bits"


def test_a_saved_file_goes_in_the_end(manager, monkeypatch):
    monkeypatch.setattr(saved_files, "KEPT_S", 0.05)
    name = _made(manager)
    _drawings_end(manager)
    until = time.monotonic() + 10
    while manager._storage._files_by_id and time.monotonic() < until:
        time.sleep(0.02)
    with pytest.raises(MediaFileStorageError):
        manager._storage.get_file(name)


def test_a_file_made_again_starts_its_time_anew(manager, monkeypatch):
    monkeypatch.setattr(saved_files, "KEPT_S", 0.2)
    _made(manager)
    _drawings_end(manager)
    waiting = list(manager._storage._leaving.values())
    name = _made(manager)
    for thread in waiting:
        thread.join(10)
    assert manager._storage.get_file(name).content == b"bits"


def test_a_picture_goes_at_once(manager):
    manager.add(b"\x89PNG", "image/png", "1.3")
    manager.clear_session_refs()
    manager.remove_orphaned_files()
    assert not manager._storage._files_by_id


def test_the_server_keeps_saved_files(monkeypatch):
    from streamlit.runtime import memory_media_file_storage

    before = memory_media_file_storage.MemoryMediaFileStorage
    monkeypatch.setattr(memory_media_file_storage, "MemoryMediaFileStorage", before)
    saved_files.keep()
    assert memory_media_file_storage.MemoryMediaFileStorage is saved_files.LastingFiles
    assert issubclass(saved_files.LastingFiles, before)
