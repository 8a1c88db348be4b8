"""Files made for a download button stay until the browser has fetched them.

Streamlit makes a deferred download's file at the click, with no session as its owner, and deletes it when
two drawings, also of fragments and of other visitors, have ended since. Panels that renew themselves every
second end them faster than a loaded browser asks for the file: the download was cancelled (404).
"""

from __future__ import annotations

import threading

from streamlit.runtime import memory_media_file_storage
from streamlit.runtime.media_file_storage import MediaFileKind

KEPT_S = 60.0  # seconds that a file stays after Streamlit wants it deleted


class LastingFiles(memory_media_file_storage.MemoryMediaFileStorage):
    """Streamlit's storage, which deletes what a download button made ``KEPT_S`` seconds later."""

    def __init__(self, media_endpoint: str) -> None:
        super().__init__(media_endpoint)
        self._leaving: dict[str, threading.Timer] = {}
        self._lock = threading.Lock()  # a timer ends in its own thread

    def load_and_get_id(self, *args, **settings) -> str:
        with self._lock:
            file_id = super().load_and_get_id(*args, **settings)
            if timer := self._leaving.pop(file_id, None):
                timer.cancel()
        return file_id

    def delete_file(self, file_id: str) -> None:
        with self._lock:
            file = self._files_by_id.get(file_id)
            if file is None or file.kind != MediaFileKind.DOWNLOADABLE:
                super().delete_file(file_id)
            elif file_id not in self._leaving:
                timer = threading.Timer(KEPT_S, lambda: self._leave(file_id, timer))
                timer.daemon = True
                self._leaving[file_id] = timer
                timer.start()

    def _leave(self, file_id: str, timer: threading.Timer) -> None:
        with self._lock:
            if self._leaving.get(file_id) is timer:  # else it was made again meanwhile
                del self._leaving[file_id]
                super().delete_file(file_id)


def keep() -> None:
    """For the runtime that the server is about to make; the time is no setting of Streamlit's."""
    memory_media_file_storage.MemoryMediaFileStorage = LastingFiles
