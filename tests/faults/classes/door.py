"""Who is let in: every Host × Origin × token × method in the door itself, and every route of a live server
with something wrong."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import test_door
import test_live_server
from live_server import Live

from tests.faults.case import TryOne, folders, hold

TITLE = "Every route × Host × Origin × token × method"
LEAST = 9310
SHARE = 1.0


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    pairs = list(itertools.product(test_door.METHODS, test_door.HOSTS.items()))
    with folders(at):
        home = at / "live"
        home.mkdir()
        live = Live(home)
        try:
            good = test_live_server.cookie(live)
            asked = list(itertools.product(test_live_server.routes(), test_live_server.METHODS))

            def try_one(seed: int) -> int:
                if seed % 2:
                    return _live(live, good, *asked[seed // 2 % len(asked)], random.Random(seed))
                return _door(*pairs[seed // 2 % len(pairs)])

            yield try_one
        finally:
            live.stop()


def _door(method: str, host: tuple[str, bool]) -> int:
    name, served = host
    count = 0
    for (form, ours), shown in itertools.product(test_door.ORIGINS.values(), test_door.SHOWN):
        origin = form.format(name) if form else form
        reads = method in ("GET", "HEAD")
        allowed = served and (ours or (ours is None and reads))
        seen, status, _ = test_door.call(method, name, origin, shown)
        expected = allowed and shown in ("cookie", "bearer")
        hold(bool(seen) == expected, "in", f"{method} Host {name!r} Origin {origin!r} {shown}: {status}")
        count += 1
    return count


def _live(live: Live, good: str, path: str, method: str, rng: random.Random) -> int:
    own = f"http://127.0.0.1:{live.port}"
    writes = {} if method in ("GET", "HEAD") else {"origin": own}
    stranger = rng.choice(({}, {"cookie": good + "x"}, {"authorization": "Bearer " + "x" * 48}))
    status = live.ask(method, path, **writes, **stranger)[0]
    hold(status == 401, "in", f"{method} {path} without the token: {status}")
    wrong = rng.choice(
        (
            {"host": "evil.example"},
            {"host": f"evil.example:{live.port}"},
            {"origin": "http://127.0.0.1:1"},
            {"origin": "null"},
            {"sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"},
        )
    )
    status = live.ask(method, path, **{"cookie": good} | writes | wrong)[0]
    hold(status == 403, "in", f"{method} {path} with {wrong}: {status}")
    status, headers, body = live.ask(method, path, cookie=good, **writes)
    hold(
        status not in (401, 500) and not body.startswith("This app"),
        "in",
        f"{method} {path} as it should be: {status}",
    )
    policy = headers.get("content-security-policy", "")
    hold("frame-ancestors 'self'" in policy, "in", f"{method} {path}: {policy!r}")
    return 3
