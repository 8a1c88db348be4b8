"""Visitors who have left: Streamlit keeps up to 128 of them for two minutes, each with an event loop of three
descriptors, so that a reconnecting tab finds its state. Here it keeps as many as one person's tabs."""

from __future__ import annotations

from streamlit.runtime import memory_session_storage

KEPT = 8


class FewSessions(memory_session_storage.MemorySessionStorage):
    """Streamlit's storage with room for few; what is pushed out is shut down, its descriptors with it."""

    def __init__(self, maxsize: int = KEPT, ttl_seconds: int = 120) -> None:
        super().__init__(maxsize, ttl_seconds)


def keep_few() -> None:
    """For the runtime that the server is about to make; the size is no setting of Streamlit's."""
    memory_session_storage.MemorySessionStorage = FewSessions
