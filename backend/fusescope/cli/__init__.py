"""The command line: one module a verb, found by name.

A verb defines HELP (one line), ``arguments(parser, words)`` (adds its options; words are what was typed after
the verb) and ``run(args, out) -> exit code``. Exit codes: 0 done, 1 the work failed, 2 bad arguments. With
--json the answer is the only thing on standard output; progress and logs go to standard error. The form of
each answer is a JSON schema in backend/fusescope/schemas.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

import fusescope
from fusescope.cli import verbs
from fusescope.cli.output import Output, Parser, missing_package
from fusescope.core.discovery import load_part, module_names
from fusescope.core.errors import BuildError, RunError

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
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            print(_overview())
            return 0 if words else 2
        if words[0] == "--version":
            print(f"fusescope {fusescope.__version__}")
            return 0
        verb, rest = words[0], words[1:]
        try:
            module = load(verb)
            parser = Parser(prog=f"fusescope {verb}", description=module.HELP, allow_abbrev=False)
            parser.add_argument("--json", action="store_true", help="the answer as JSON on standard output")
            module.arguments(parser, rest)
            args = parser.parse_args(rest)
            return module.run(args, Output(args.json))
        except SystemExit as stop:  # argparse: --help, or a wrong argument that Parser.error has explained
            return int(stop.code or 0)
    except (ValueError, TypeError) as error:
        if os.environ.get("FUSESCOPE_DEBUG"):
            raise
        return _fail(2, str(error))
    except RunError as error:
        return _fail(1, str(error))
    except BuildError as error:
        for cause in error.causes:
            print(f"{cause.check}: {cause.says}\n  fix: {cause.fix}", file=sys.stderr)
        return _fail(1, str(error))
    except ModuleNotFoundError as error:
        return _fail(1, missing_package(" ".join(words[:2]), error))
    except KeyboardInterrupt:
        return _fail(1, "interrupted")
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # the reader has gone; nothing is left to flush to
        return 1
    except OSError as error:
        if os.environ.get("FUSESCOPE_DEBUG"):
            raise
        return _fail(
            1, f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        )
    except Exception as error:
        if os.environ.get("FUSESCOPE_DEBUG"):
            raise
        return _fail(1, f"{type(error).__name__}: {error} (set FUSESCOPE_DEBUG=1 to see where)")


def _fail(code: int, message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


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
