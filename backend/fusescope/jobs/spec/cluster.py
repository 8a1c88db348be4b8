"""Where a sweep is measured: ``cluster`` of a spec and ``--cluster`` of a verb. Neither torch nor Dask."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass

from fusescope.core.schema import Parameter

FORMS = "local, local:N, tcp://HOST:PORT, tls://HOST:PORT or slurm"
MOST_LOCAL = 256


@dataclass(frozen=True)
class Place:
    """Where the workers are. how: "local" (this machine), "address" (a scheduler that runs) or "slurm".

    workers: of a local cluster, how many; None: one per GPU, or one per two cores on the CPU, at least two.
    scheme, host, port: of an address.
    """

    how: str
    workers: int | None = None
    scheme: str = ""
    host: str = ""
    port: int = 0

    @property
    def here(self) -> bool:
        """Whether the workers are on this very machine, with its devices."""
        return self.how == "local"


def parse(text: str) -> Place:
    """The place that a text names; ValueError: the forms there are, and the text."""
    if text in ("local", "slurm"):
        return Place(text)
    if match := re.fullmatch(r"local:(\d{1,6})", text):
        if not 1 <= int(match[1]) <= MOST_LOCAL:
            raise ValueError(f"local:N takes 1 to {MOST_LOCAL} workers, not {match[1]}")
        return Place("local", int(match[1]))
    if match := re.fullmatch(r"(tcp|tls)://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(\d{1,5})", text):
        if not 1 <= int(match[3]) <= 65535:
            raise ValueError(f"a port is a number from 1 to 65535, not {match[3]} in {text}")
        return Place("address", None, match[1], match[2].strip("[]"), int(match[3]))
    raise ValueError(f"a cluster is {FORMS}, not {text!r}")


def is_loopback(host: str) -> bool:
    """Whether every address of the host is of this machine alone; a name that cannot be resolved is not."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(ipaddress.ip_address(a.partition("%")[0]).is_loopback for a in found)


def _checked(text: str) -> str | None:
    if not text:
        return None
    parse(text)
    return text


CLUSTER = Parameter("cluster", "text", None, FORMS, further=_checked)


def local_device(spec: dict, device: str) -> str | None:
    """The device that the job itself holds while it runs. On a cluster each worker takes its own, but for
    the CPU of this machine, which the job holds for all of its workers."""
    if not spec.get("cluster"):
        return device
    return "cpu" if device == "cpu" and parse(spec["cluster"]).here else None


def is_elsewhere(spec: dict) -> bool:
    """Whether the devices are another machine's, so that this one cannot say what they are."""
    return bool(spec.get("cluster")) and not parse(spec["cluster"]).here
