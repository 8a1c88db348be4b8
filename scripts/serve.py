"""Starts the app on 127.0.0.1, on the given port or, with a message, the next free one. The app prints its
address with the token that opens it."""

from __future__ import annotations

import argparse
import atexit
import os
import socket
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def is_free(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8501)
    parser.add_argument(
        "--address", default="127.0.0.1", help="anything but 127.0.0.1 opens the app to others"
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name that browsers know this server by, such as a reverse proxy's (repeatable)",
    )
    parser.add_argument("--prefix", default="", help="path below which a reverse proxy serves the app")
    parser.add_argument(
        "--no-token",
        action="store_true",
        help="ask for no token: every user of this machine can then run files as you",
    )
    options = parser.parse_args()
    if not 1 <= options.port <= 65535:
        parser.error(f"a port must be 1 to 65535, not {options.port}")
    port = next(
        (p for p in range(options.port, min(options.port + 100, 65536)) if is_free(options.address, p)), None
    )
    if port is None:
        print(
            f"no free port from {options.port} to {options.port + 99}; give another one: make run PORT=9000",
            file=sys.stderr,
        )
        return 1
    if port != options.port:
        print(f"port {options.port} is taken; the next free one is {port}", flush=True)
    os.chdir(ROOT)
    if options.no_token:
        os.environ["FUSESCOPE_NO_TOKEN"] = "1"
    arguments = ["--server.port", str(port), "--server.address", options.address]
    arguments += [text for name in options.host for text in ("--server.allowedHosts", name)]
    arguments += ["--server.baseUrlPath", options.prefix] if options.prefix else []
    return serve(arguments)


def serve(arguments: list[str]) -> int:
    """ "streamlit run" in this process, for which Ctrl-C is an end like any other."""
    import click
    from streamlit.web import cli

    sys.path[0] = str(ROOT)  # not the folder of this script
    try:
        cli.main(["run", "app.py", *arguments], standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        pass  # uvicorn hands the signal on when it has shut down: click would say "Aborted!", exit status 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    print("\nFuseScope has stopped.", flush=True)
    atexit._run_exitfuncs()
    os._exit(0)  # else DuckDB's binding lists what is still referenced


if __name__ == "__main__":
    sys.exit(main())
