"""Answers leave at once: the socket that Streamlit makes does not name its protocol, for which asyncio would
otherwise see to that."""

import asyncio
import socket

from pages._ui.guard import slow


def test_no_answer_waits_for_the_receipt_of_its_header():
    class Protocol(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport, self.cycle = transport, None

    connections = slow.Connections()
    connections.note(Protocol)

    async def at_once() -> int:
        with socket.socket() as listening:  # as Streamlit's _bind_socket makes it
            listening.bind(("127.0.0.1", 0))
            server = await asyncio.get_running_loop().create_server(Protocol, sock=listening)
            _, writer = await asyncio.open_connection(*listening.getsockname())
            while not connections.open:
                await asyncio.sleep(0.01)
            accepted = next(iter(connections.open)).transport.get_extra_info("socket")
            found = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()
            server.close()
            return found

    assert asyncio.run(asyncio.wait_for(at_once(), 10))
