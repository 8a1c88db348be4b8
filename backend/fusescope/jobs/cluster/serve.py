"""A scheduler, or the workers of this machine, until they are stopped: what the members of a cluster run."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable
from typing import Any

from fusescope.core.machine import environment
from fusescope.jobs.cluster import certificates, deploy
from fusescope.jobs.process import scratch
from fusescope.jobs.spec.cluster import Place, is_loopback, parse

Say = Callable[[dict[str, Any]], None]


def scheduler(host: str, port: int, say: Say) -> None:
    """A scheduler at host and port (0: any free one) until SIGINT or SIGTERM. ``say({"address"})`` once it
    listens.

    ValueError, in one sentence: a port that is taken, a host that is not this machine's, no certificates
    where it listens beyond this machine.
    """
    deploy.need()
    import dask
    from distributed import Scheduler

    secured = certificates.security(Place("address", None, "tcp", host, port))
    protocol = "tls://" if secured else "tcp://"

    async def serve() -> None:
        try:
            made = Scheduler(host=host, port=port, protocol=protocol, security=secured, **deploy.QUIET)
            async with made:
                say({"address": made.address})
                await _until_stopped(made.finished())
        except OSError as e:
            raise ValueError(_why(e, host, port)) from None
        except RuntimeError as e:
            cause = e.__cause__
            raise (ValueError(_why(cause, host, port)) if isinstance(cause, OSError) else e) from None

    with dask.config.set(deploy.settings()):
        asyncio.run(serve())


def workers(address: str, device: str | None, say: Say) -> None:
    """Workers for a scheduler, one per GPU of this machine (``device``: "cpu" one on the CPU, "cuda:1" one on
    that GPU; None: all GPUs, else the CPU), until SIGINT, SIGTERM or the scheduler's end. ``say({"address",
    "workers"})`` once they are there.

    ValueError, in one sentence: no such device, nobody at the address, no certificates.
    """
    place = parse(address)
    if place.how != "address":
        raise ValueError(f"a worker joins a scheduler at tcp://HOST:PORT or tls://HOST:PORT, not {address!r}")
    mine = members(device)
    with deploy.client(place, "cpu") as client:  # somebody is there, and speaks to us
        target = client.scheduler.address
    secured = certificates.security(place)
    host = "127.0.0.1" if is_loopback(place.host) else None

    async def serve() -> None:
        from distributed import Nanny

        options = {"nthreads": 1, "memory_limit": None, "death_timeout": 60.0} | deploy.QUIET
        options |= {"host": host, "security": secured}
        async with contextlib.AsyncExitStack() as stack:
            options |= {"local_directory": str(stack.enter_context(scratch.folder(scratch.CLUSTER)))}
            nannies = [Nanny(target, name=name, env=env, **options) for name, env in mine.items()]
            for nanny in nannies:
                await stack.enter_async_context(nanny)
            say({"address": target, "workers": list(mine)})
            await _until_stopped(*(nanny.finished() for nanny in nannies))

    import dask

    with dask.config.set(deploy.settings()):
        asyncio.run(serve())


def members(device: str | None) -> dict[str, dict[str, str]]:
    """{name of a worker of this machine: its own variables}, a device each."""
    host, there = os.uname().nodename, environment.visible_gpus()
    common = next(iter(deploy.environments(1, "cpu").values()))
    if device == "cpu" or (device is None and not there):
        return {f"{host} cpu": common}
    every = deploy.environments(None, "cuda:0") if there else {}
    named = {f"cuda:{n}": env for n, env in enumerate(every.values())}
    if device is not None and device not in named:
        raise ValueError(f"there is no device {device!r} here; there is {', '.join([*named, 'cpu'])}")
    return {f"{host} {name}": env for name, env in named.items() if device in (None, name)}


def listing(address: str) -> list[dict[str, Any]]:
    """The workers of a running cluster: {"name", "address", "running"}: how many tasks each has in hand."""
    with deploy.client(parse(address), "cpu") as client:
        at_work = client.processing()
        found = client.scheduler_info()["workers"].items()
        return [
            {"name": str(w.get("name") or a), "address": a, "running": len(at_work.get(a, ()))}
            for a, w in found
        ]


async def _until_stopped(*ends) -> None:
    """Wait for SIGINT, SIGTERM, or the end of all ``ends``."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    waiting = [asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(asyncio.gather(*ends))]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def _why(e: OSError, host: str, port: int) -> str:
    if e.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken; choose another with --port, 0 for any free one"
    return f"a scheduler cannot listen at {host}:{port}: {e.strerror or e}"
