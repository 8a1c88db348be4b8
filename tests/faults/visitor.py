"""A visitor's browser, as far as the server can tell: the WebSocket of Streamlit, without a browser."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import websockets.sync.client
from live_server import Live
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.faults.case import hold


@contextlib.contextmanager
def visit(live: Live) -> Iterator[websockets.sync.client.ClientConnection]:
    """One tab, open for a while."""
    with websockets.sync.client.connect(
        f"ws://127.0.0.1:{live.port}/_stcore/stream",
        origin=f"http://127.0.0.1:{live.port}",
        subprotocols=["streamlit"],
        additional_headers={"Authorization": f"Bearer {live.token}"},
        max_size=None,
        open_timeout=60,
    ) as socket:
        yield socket


def draw(socket: websockets.sync.client.ClientConnection, page: str, query: str = "") -> int:
    """Go to a page and wait until it is drawn; the number of elements. A page that shows an exception is a
    Fault."""
    message = BackMsg()
    message.rerun_script.query_string = query
    message.rerun_script.page_name = page
    socket.send(message.SerializeToString())
    got, elements = ForwardMsg(), 0
    while got.WhichOneof("type") != "script_finished":
        got.ParseFromString(socket.recv(timeout=120))
        if got.WhichOneof("type") == "delta" and got.delta.WhichOneof("type") == "new_element":
            elements += 1
            element = got.delta.new_element
            shown = element.WhichOneof("type") == "exception"
            hold(not shown, "raw", f"page {page}?{query} shows {shown and element.exception.message}")
    return elements
