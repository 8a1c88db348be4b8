"""A body that does not come is given up; one that comes slowly, but comes, is not."""

import asyncio

import pytest

from pages._ui.guard import slow

pytestmark = pytest.mark.slow


def receiver(*messages, then_waits=True):
    left = list(messages)

    async def receive():
        if not left and then_waits:
            await asyncio.sleep(60)
        wait, size, more = left.pop(0)
        await asyncio.sleep(wait)
        return {"type": "http.request", "body": b"x" * size, "more_body": more}

    return receive


async def read(receive) -> int:
    got, more = 0, True
    while more:
        message = await receive()
        got, more = got + len(message["body"]), message["more_body"]
    return got


def test_a_pause_and_a_trickle_are_too_slow(monkeypatch):
    monkeypatch.setattr(slow, "PAUSE_S", 0.1)
    with pytest.raises(slow.TooSlow):
        asyncio.run(read(slow.timed(receiver((0, 10, True)))))
    with pytest.raises(slow.TooSlow):  # ten bytes each 50 ms: 200 B/s
        asyncio.run(read(slow.timed(receiver(*[(0.05, 10, True)] * 50))))


def test_a_steady_body_and_what_follows_it_have_time(monkeypatch):
    monkeypatch.setattr(slow, "PAUSE_S", 0.1)
    steady = [*[(0.05, 500, True)] * 6, (0.05, 0, False)]
    assert asyncio.run(read(slow.timed(receiver(*steady)))) == 3000

    async def waits_for_the_end():
        receive = slow.timed(receiver((0, 0, False), (0.2, 0, False)))
        await receive()
        return await receive()  # an answer that streams waits here for the client to go

    assert asyncio.run(waits_for_the_end())["type"] == "http.request"
