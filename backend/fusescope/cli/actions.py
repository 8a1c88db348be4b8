"""The actions of a verb that has several, such as ``runs list``; and the option --json, which all have."""

from __future__ import annotations

import argparse
from collections.abc import Callable

ADD = Callable[[str, str, Callable], argparse.ArgumentParser]


def json_option(parser, **settings) -> None:
    parser.add_argument(
        "--json", action="store_true", help="the answer as JSON on standard output", **settings
    )


def actions(parser) -> ADD:
    """``add(name, text, work)`` makes one more action, and its parser; run() calls ``args.work``."""
    chosen = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add(name: str, text: str, work: Callable) -> argparse.ArgumentParser:
        sub = chosen.add_parser(name, help=text, description=text, allow_abbrev=False)
        json_option(sub, default=argparse.SUPPRESS)  # --json before the action stays true
        sub.set_defaults(work=work)
        return sub

    return add
