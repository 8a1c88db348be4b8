"""Visitors who have left cost the server no descriptors for long."""

from __future__ import annotations

import os
import shutil
import time

import pytest
import websockets.sync.client
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from fusescope.core.paths import ROOT
from pages._ui.guard.sessions import KEPT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
_EACH = 5  # descriptors of a visitor who may come back: an event loop, and what is being closed


def draw(live, page: str) -> None:
    """One visitor looks at one page and leaves."""
    address, origin = f"ws://127.0.0.1:{live.port}/_stcore/stream", f"http://127.0.0.1:{live.port}"
    with websockets.sync.client.connect(
        address,
        origin=origin,
        subprotocols=["streamlit"],
        additional_headers={"Authorization": f"Bearer {live.token}"},
        max_size=None,
    ) as socket:
        message = BackMsg()
        message.rerun_script.query_string = ""
        message.rerun_script.page_name = page
        socket.send(message.SerializeToString())
        got = ForwardMsg()
        while got.WhichOneof("type") != "script_finished":
            got.ParseFromString(socket.recv(timeout=60))


def descriptors(live) -> int:
    return len(os.listdir(f"/proc/{live.process.pid}/fd"))


@pytest.mark.long
def test_descriptors_stay_level_over_page_draws(live):
    """They grew by three a draw, to 393, while Streamlit kept the sessions of 128 visitors."""
    recorded = live.home / "profiles" / "recorded"
    for run in sorted((ROOT / "profiles" / "recorded").glob("2*-bench-*"))[:3]:
        shutil.copytree(run, recorded / run.name)
    found = []
    for n in range(40):
        draw(live, ("", "runs")[n % 2])
        found.append(descriptors(live))
    end = time.monotonic() + 20
    while descriptors(live) > found[0] + _EACH * KEPT and time.monotonic() < end:
        time.sleep(0.2)
    assert descriptors(live) <= found[0] + _EACH * KEPT, found
    assert max(found[20:]) <= max(found[:20]) + 2 * _EACH, found


def test_the_server_keeps_few_visitors():
    from streamlit.runtime import memory_session_storage

    from pages._ui.guard import sessions

    before = memory_session_storage.MemorySessionStorage
    try:
        sessions.keep_few()
        made = memory_session_storage.MemorySessionStorage(ttl_seconds=7)
        assert isinstance(made, before) and isinstance(made, sessions.FewSessions)
    finally:
        memory_session_storage.MemorySessionStorage = before
