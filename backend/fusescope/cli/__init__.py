"""The command line: one module per verb, found by name.

A verb defines HELP (one line), ``arguments(parser, words)`` (adds its options; words are what was typed after
the verb) and ``run(args, out) -> exit code``. Exit codes: 0 done, 1 the work failed, 2 bad arguments. With
--json the answer is the only thing on standard output; progress and logs go to standard error. The form of
each answer is a JSON schema in backend/fusescope/schemas.
"""

from __future__ import annotations

import sys
from types import ModuleType

import fusescope
from fusescope.cli import verbs
from fusescope.cli.actions import json_option
from fusescope.cli.errors import reported
from fusescope.cli.output import Output, Parser
from fusescope.core.discovery import load_part, module_names

PARTS = ("HELP", "arguments", "run")


def names() -> list[str]:
    """The verbs there are."""
    return module_names(verbs)


def load(verb: str) -> ModuleType:
    """The verb's module; ValueError for an unknown one, TypeError naming the parts that a file lacks."""
    return load_part(verbs, verb, PARTS, "verb")


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return the exit code; argv: what follows ``fusescope`` (default: the
    process's arguments)."""
    words = list(sys.argv[1:] if argv is None else argv)
    return reported(words, lambda: _run(words))


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0 if words else 2
    if words[0] == "--version":
        print(f"fusescope {fusescope.__version__}")
        return 0
    verb, rest = words[0], words[1:]
    parser, module = parser_of(verb, rest)
    args = parser.parse_args(rest)
    return module.run(args, Output(args.json))


def parser_of(verb: str, words: list[str]) -> tuple[Parser, ModuleType]:
    """The parser of a verb, with the options that these words call for, and the verb's module."""
    module = load(verb)
    parser = Parser(prog=f"fusescope {verb}", description=module.HELP, allow_abbrev=False)
    json_option(parser)
    module.arguments(parser, words)
    return parser, module


def _overview() -> str:
    width = max(map(len, names()))
    lines = [f"  {verb:<{width}}  {load(verb).HELP}" for verb in names()]
    return "\n".join(
        [
            "usage: fusescope VERB [options]",
            "",
            *lines,
            "",
            "Every verb takes --help and --json. Exit codes: 0 done, 1 the work failed, 2 bad arguments.",
        ]
    )
