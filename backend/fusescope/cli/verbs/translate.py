"""``translate``: what a fusion scheme's 16 bits mean."""

from __future__ import annotations

from fusescope.cli.output import table
from fusescope.search import encoding
from fusescope.search.scheme.layer import OPERATORS

HELP = "a fusion scheme's 16 bits or value as fused segments, with its canonical code and complement"


def arguments(parser, words) -> None:
    parser.add_argument(
        "code", metavar="CODE", help="exactly 16 characters of 0 and 1, or a decimal value from 0 to 65535"
    )


def run(args, out) -> int:
    data = describe(args.code)
    out.answer(data, text(data))
    return 0


def describe(code: str) -> dict:
    """Everything the verb says, as JSON values (translate.json); ValueError with the rule for what is no
    code."""
    with_attention = encoding.attention(code)
    parts = [
        {
            "operators": list(part),
            "names": [OPERATORS[i].name for i in part],
            "attention": with_attention and part == encoding.ATTENTION,
        }
        for part in encoding.parts(code)
    ]
    return {
        "line": encoding.translate(code),
        "bits": encoding.bits(code),
        "value": encoding.value(code),
        "attention": with_attention,
        "segments": [{"start": a, "end": b} for a, b in encoding.segments(code)],
        "parts": parts,
        "boundaries": list(encoding.boundaries(code)),
        "canonical": _both(encoding.canonical(code)),
        "complement": _both(encoding.complement(code)),
    }


def _both(code: str) -> dict:
    return {"bits": code, "value": encoding.value(code)}


def text(data: dict) -> str:
    """The same for people; the first line is the translation alone."""
    rows = [[_span(p["operators"]), _kind(p), " → ".join(p["names"])] for p in data["parts"]]
    lines = [data["line"], "", table(["operators", "", "names"], rows), ""]
    lines += [
        f"{name:<11} {data[name]['bits']}  {data[name]['value']}" for name in ("canonical", "complement")
    ]
    if data["attention"]:
        lines += [
            "",
            "Bit 0 is set: the hand-written attention is operators 2-7, whatever bits 3-8 say, and nothing "
            "is fused with it.",
        ]
    return "\n".join(lines)


def _span(operators: list[int]) -> str:
    return str(operators[0]) if len(operators) == 1 else f"{operators[0]}-{operators[-1]}"


def _kind(part: dict) -> str:
    return (
        "hand-written attention" if part["attention"] else "fused" if len(part["operators"]) > 1 else "alone"
    )
