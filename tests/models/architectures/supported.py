"""docs/models-supported.md: written from verdicts, read back as what each class is expected to do."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import transformers

from tests.models.architectures import tiny
from tests.models.architectures.verdict import TOLERANCE, Verdict

FILE = Path(__file__).resolve().parents[3] / "docs" / "models-supported.md"
TITLES = {
    "equal": "Served",
    "refused": "Refused when built, loaded or switched",
    "refused in forward": "Refused in the first forward",
    "not compared": "Not compared",
}
_INTRO = """# Hugging Face models under attn_implementation="fusescope"

Written by `python3 scripts/models_supported.py` from tiny random models of transformers {version}, {count}
classes; `make test-archs` repeats it.

A class is **served** where its outputs in float32 equal those of "eager" within {tolerance:g} of the largest
value: on a padded batch where it takes a mask, and for one more token over a cache where it has one. Any
other is **refused by name**: by what it declares (`_supports_sdpa`), by code that does not ask transformers'
attention registry, or at the latest in its first forward. Use "eager" there.

Head sizes are multiples of 8 from 32 to 256, the same for keys and values, and calls are forward only.
Classes that deny sdpa for soft caps or sinks are served where they declare FlexAttention.
"""
_LEFT = "These pass the checks at load, but no tiny random model of them ran here, by the kind of error:"


def text(verdicts: dict[str, Verdict]) -> str:
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, verdict in verdicts.items():
        state = verdict.state if verdict.state in TITLES else "not compared"
        groups[state][_reason(name, verdict)].append(name)
    parts = [_INTRO.format(version=transformers.__version__, count=len(verdicts), tolerance=TOLERANCE)]
    for state, title in TITLES.items():
        lines = [f"## {title}", ""]
        if state == "not compared":
            lines += [_LEFT, ""]
        for reason, names in sorted(groups[state].items()):
            lines.append(f"- {reason} ({len(names)}): {', '.join(f'`{name}`' for name in sorted(names))}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def expected(content: str) -> dict[str, str]:
    """{class: state} of the document."""
    found = {}
    for part in content.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        state = next(state for state, given in TITLES.items() if given == title)
        for line in body.splitlines():
            if line.startswith("- "):
                found |= dict.fromkeys(re.findall(r"`(\w+)`", line.rpartition("): ")[2]), state)
    return found


def _reason(name: str, verdict: Verdict) -> str:
    """What classes are grouped by: their kind, or why."""
    if verdict.state == "equal":
        return tiny.classes()[name][0]
    said = verdict.why.removeprefix("Unsupported: ")
    for pattern in (r'="fusescope": (.*?); use "eager"', r"asks for (.*?), which", r"(.*?);"):
        if verdict.state.startswith("refused") and (match := re.search(pattern, said)):
            return match[1]
    said = said.partition(" | ")[0]
    return re.sub(r"[`|]", "", said)[:110] if verdict.state.startswith("refused") else _error(said)


def _error(said: str) -> str:
    """What kept a tiny model from running, in a word or two."""
    if re.fullmatch(r"\d+ parameters", said):
        return "too many parameters"
    if match := re.search(r"requires the (\w+) library", said):
        return f"without {match[1]}"
    return re.match(r"[\w ]*", said)[0] or "no reason given"
