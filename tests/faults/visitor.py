"""A visitor's browser, as far as the server can tell: the WebSocket of Streamlit, without a browser."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import websockets.sync.client
from live_server import Live
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.faults.case import hold

_GOES_ON = (  # a fragment of the page before has ended, or the script wants to be run again, and is
    ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY,
    ForwardMsg.FINISHED_EARLY_FOR_RERUN,
)


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


def draw(
    socket: websockets.sync.client.ClientConnection, page: str, query: str = "", press: str | None = None
) -> dict[str, str]:
    """Go to a page, or press the button of this id on it, and wait until that run of the script has drawn all
    of it; the ids of its enabled buttons by their keys. A page that shows an exception is a Fault."""
    message = BackMsg()
    message.rerun_script.query_string = query
    message.rerun_script.page_name = page
    if press:
        message.rerun_script.widget_states.widgets.add(id=press, trigger_value=True)
    socket.send(message.SerializeToString())
    got, buttons, begun = ForwardMsg(), {}, False
    while True:
        got.ParseFromString(socket.recv(timeout=120))
        kind = got.WhichOneof("type")
        if kind == "new_session":
            buttons, begun = {}, True
        elif kind == "script_finished" and begun and got.script_finished not in _GOES_ON:
            hold(got.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY, "raw", f"page {page}: no script")
            return buttons
        elif kind == "delta" and got.delta.WhichOneof("type") == "new_element":
            element = got.delta.new_element
            shown = element.WhichOneof("type") == "exception"
            hold(not shown, "raw", f"page {page}?{query} shows {shown and element.exception.message}")
            if element.WhichOneof("type") == "button" and not element.button.disabled:
                buttons[element.button.id.split("-", 2)[-1]] = element.button.id
