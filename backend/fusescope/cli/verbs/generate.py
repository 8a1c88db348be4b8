"""``generate``: a fusion scheme as a readable Python module that checks and times itself when it is run."""

from __future__ import annotations

from pathlib import Path

from fusescope.cli import layer
from fusescope.cli.output import say
from fusescope.search import encoding
from fusescope.search.scheme import codegen

HELP = "a fusion scheme as a readable Python module that can be run alone"


def arguments(parser, words) -> None:
    parser.add_argument(
        "code", metavar="CODE", help="exactly 16 characters of 0 and 1, or a decimal value from 0 to 65535"
    )
    parser.add_argument("--save", metavar="FILE", help="write the module there instead of printing it")
    layer.options(parser)


def run(args, out) -> int:
    setting = layer.setting(args)
    source = codegen.generate(args.code, setting)
    if args.save:
        Path(args.save).write_text(source)
        say(f"written to {args.save}; python {args.save} checks and times it")
    data = {
        "code": encoding.canonical(args.code),
        "value": encoding.value(encoding.canonical(args.code)),
        "setting": setting.spec(),
        "segments": [
            {"operators": list(s.operators), "how": s.how, "function": s.function, "names": s.names}
            for s in codegen.plan(args.code, setting)
        ],
        "file": args.save,
        "source": source,
    }
    out.answer(data, codegen.words(args.code, setting) if args.save else source.rstrip("\n"))
    return 0
