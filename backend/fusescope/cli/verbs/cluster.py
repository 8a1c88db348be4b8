"""``cluster``: what a cluster of several machines is made of: certificates, a scheduler, workers."""

from __future__ import annotations

from pathlib import Path

from fusescope.charts.numbers import plural
from fusescope.cli.actions import actions
from fusescope.cli.numbers import integer
from fusescope.cli.output import table
from fusescope.jobs.cluster import certificates, serve

HELP = "a cluster of GPUs and hosts: its certificates, its scheduler, its workers (docs/cluster.md)"
PORT = 8786  # Dask's


def arguments(parser, words) -> None:
    action = actions(parser)
    sub = action("certificates", "make the certificates that all members of a cluster share", make)
    sub.add_argument("dir", metavar="DIR", help="a new folder, to be copied to every machine of the cluster")
    sub.add_argument(
        "--days",
        type=integer(1, 3650),
        default=certificates.DAYS,
        help=f"how long they are valid (default {certificates.DAYS})",
    )
    sub = action("scheduler", "run a scheduler until Ctrl-C", schedule)
    sub.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen at (default 127.0.0.1; any other needs certificates)",
    )
    sub.add_argument("--port", type=integer(0, 65535), default=PORT, help=f"0: any free one (default {PORT})")
    sub = action("worker", "run the workers of this machine until Ctrl-C", work)
    sub.add_argument("address", metavar="ADDRESS", help="the scheduler, tcp://HOST:PORT")
    sub.add_argument("--device", help="cpu, or cuda:N (default: a worker a GPU, else one on the CPU)")
    sub = action("workers", "who is in a running cluster", show)
    sub.add_argument("address", metavar="ADDRESS", help="the scheduler, tcp://HOST:PORT")


def run(args, out) -> int:
    return args.work(args, out)


def make(args, out) -> int:
    folder = Path(args.dir).expanduser().resolve()
    files = [str(file) for file in certificates.make(folder, args.days)]
    text = (
        f"{folder} holds the certificates of a cluster for {plural(args.days, 'day')}. Whoever has "
        f"{certificates.KEY} may run code as you on its workers.\n"
        f"On every machine: a copy of the folder, and export {certificates.VARIABLE}={folder}"
    )
    out.answer({"folder": str(folder), "files": files, "days": args.days}, text)
    return 0


def schedule(args, out) -> int:
    def say(about: dict) -> None:
        address = about["address"]
        out.answer(about, f"scheduler at {address}\nworkers join by: fusescope cluster worker {address}")

    serve.scheduler(args.host, args.port, say)
    return 0


def work(args, out) -> int:
    def say(about: dict) -> None:
        out.answer(about, f"{', '.join(about['workers'])}: at work for {about['address']}")

    serve.workers(args.address, args.device, say)
    return 0


def show(args, out) -> int:
    found = serve.listing(args.address)
    rows = [[w["name"], w["address"], "at work" if w["running"] else "idle"] for w in found]
    text = table(["worker", "address", ""], rows, "lll") if rows else "no worker"
    out.answer({"address": args.address, "workers": found}, text)
    return 0
