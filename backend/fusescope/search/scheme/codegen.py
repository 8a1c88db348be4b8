"""A fusion scheme as a readable Python module: a function a segment, the schedule, and a check when it is run
alone.

What a segment becomes: a hand-written kernel where one matches it exactly (templates.py), else torch.compile
of its operators, else, where it is a single operator, plain torch.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from functools import lru_cache

from fusescope.search import encoding
from fusescope.search.scheme import templates
from fusescope.search.scheme.layer import OPERATORS, flows
from fusescope.search.scheme.setting import Setting

_TEXT = {
    0: ("qkv_product = F.linear(x, qkv_weight)",),
    1: ("qkv = qkv_product + qkv_bias",),
    2: (
        "heads = qkv.view(*qkv.shape[:2], 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4).contiguous()",
        "q, k, v = heads.unbind(0)",
    ),
    3: (
        "keys = k.flatten(0, 1).transpose(1, 2)",
        "product = torch.baddbmm(q.new_empty(1, 1, 1), q.flatten(0, 1), keys, beta=0, alpha=HEAD_DIM**-0.5)",
        "scores = product.view(*q.shape[:3], -1)",
    ),
    4: ('masked_scores = torch.where(mask, scores, float("-inf"))',),
    5: ("probabilities = torch.softmax(masked_scores, -1)",),
    6: ("context = torch.matmul(probabilities, v)",),
    7: ("merged = context.transpose(1, 2).flatten(2)",),
    8: ("attention_product = F.linear(merged, attention_weight)",),
    9: ("attention_sum = attention_product + attention_bias + x",),
    10: ("attended = F.layer_norm(attention_sum, attention_sum.shape[-1:], norm1_weight, norm1_bias, EPS)",),
    11: ("ffn1_product = F.linear(attended, ffn1_weight)",),
    12: ("intermediate = F.gelu(ffn1_product + ffn1_bias)",),
    13: ("ffn2_product = F.linear(intermediate, ffn2_weight)",),
    14: (
        "total = ffn2_product + ffn2_bias + attended",
        "out = F.layer_norm(total, total.shape[-1:], norm2_weight, norm2_bias, EPS)",
    ),
}
_NO_MASK = {4: ("masked_scores = scores  # there is no mask",)}
_EMPTY_ROWS = {
    5: (
        "probabilities = torch.softmax(masked_scores, -1).masked_fill(empty_rows, 0.0)  # rows that see no "
        "key",
    )
}

_WIDTH = 110  # of lines in a generated module


@dataclass(frozen=True)
class Segment:
    """A part of a scheme. how: "torch", "inductor", or the name of a template; takes and gives: names of
    values."""

    operators: range
    how: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [OPERATORS[i].name for i in self.operators]

    @property
    def function(self) -> str:
        """The name of its function: "operator_0", "operators_9_to_10"."""
        first, last = self.operators[0], self.operators[-1]
        return f"operator_{first}" if first == last else f"operators_{first}_to_{last}"

    @property
    def span(self) -> str:
        """ "0" or "9-10", for people."""
        first, last = self.operators[0], self.operators[-1]
        return str(first) if first == last else f"{first}-{last}"


@lru_cache(maxsize=4096)
def segment(operators: range, attention: bool, setting: Setting) -> Segment:
    """The segment of these operators; ``attention``: bit 0 of the code."""
    takes, gives = flows(operators)
    template = templates.match(operators, attention)
    if template:
        how, takes = (
            template.name,
            tuple(n for n in takes if n != "mask" or not template.extra) + template.extra,
        )
    else:
        how = "torch" if len(operators) == 1 or setting.compiler == "none" else "inductor"
        if not setting.masked:
            takes = tuple(n for n in takes if n != "mask")
        if setting.facts[1] and 5 in operators:
            takes += ("empty_rows",)
    return Segment(operators, how, takes, gives)


def plan(code: str | int, setting: Setting) -> list[Segment]:
    """The segments of a scheme in order; ValueError with the rule for what is no code."""
    with_attention = encoding.attention(code)
    return [segment(part, with_attention, setting) for part in encoding.parts(code)]


def words(code: str | int, setting: Setting) -> str:
    """A scheme in one line: "0-1 inductor, 2-7 attention, 8 torch, …"."""
    return ", ".join(f"{s.span} {s.how}" for s in plan(code, setting))


def generate(code: str | int, setting: Setting) -> str:
    """The module of a scheme: readable, and a program that checks and times itself (``python FILE``)."""
    segments = plan(code, setting)
    canonical = encoding.canonical(code)
    pieces = [_head(canonical, setting, segments) + "\n" + constants(setting)]
    pieces += [segment_text(s, setting) for s in segments]
    pieces += [schedule(segments), _MAIN.format(code=canonical, setting=_keywords(setting))]
    return "\n\n".join(pieces)


def segment_module(s: Segment, setting: Setting) -> str:
    """One segment as a module of its own: the very text that ``generate`` puts into every scheme that has
    it."""
    return "\n\n".join([_imports([s]) + "\n" + constants(setting), segment_text(s, setting)])


def segment_text(s: Segment, setting: Setting) -> str:
    """The function of a segment, with the operators' names."""
    lines = []
    if s.how in ("torch", "inductor"):
        text = _TEXT | ({} if setting.masked else _NO_MASK) | (_EMPTY_ROWS if setting.facts[1] else {})
        for i in s.operators:
            lines += [f"# {i} {OPERATORS[i].name}", *text[i]]
    else:
        for done, line in templates.match(s.operators, True).lines:
            lines += ["# " + ", ".join(f"{i} {OPERATORS[i].name}" for i in done), line]
    decorator = "@compiled\n" if s.how == "inductor" else ""
    body = "\n".join(f"    {line}" for line in [*lines, f"return {', '.join(s.gives)}"])
    return f"{decorator}{_parenthesised(f'def {s.function}', s.takes, ':')}\n{body}\n"


def schedule(segments: list[Segment]) -> str:
    """The function ``layer``: the segments one after the other."""
    outside = [n for n in flows()[0] if n != "mask"]
    lines = [_parenthesised(f"    {', '.join(s.gives)} = {s.function}", s.takes) for s in segments]
    arguments = "".join(f"    {', '.join(some)},\n" for some in (outside[:3], outside[3:7], outside[7:]))
    return (
        f"def layer(\n{arguments}    mask=None, empty_rows=None, plan=None,\n):  # fmt: skip\n"
        + "\n".join([*lines, "    return out\n"])
    )


def _parenthesised(head: str, names: tuple[str, ...], tail: str = "") -> str:
    """head(names)tail in one line, or in several where it is too long."""
    line = f"{head}({', '.join(names)}){tail}"
    if len(line) <= _WIDTH:
        return line
    indent = " " * (len(head) - len(head.lstrip()))
    inner = textwrap.wrap(
        ", ".join(names) + ",", _WIDTH, initial_indent=f"{indent}    ", subsequent_indent=f"{indent}    "
    )
    return "\n".join([f"{head}(", *inner, f"{indent}){tail}"])


def constants(setting: Setting) -> str:
    from fusescope.search.scheme.unfused import EPS

    return f"HEADS, HEAD_DIM, EPS = {setting.heads}, {setting.head_dim}, {EPS}\n"


def _head(code: str, setting: Setting, segments: list[Segment]) -> str:
    lines = [
        textwrap.fill(
            f"{s.span:<6} {s.how:<24} {', '.join(s.names)}",
            _WIDTH,
            initial_indent=" " * 4,
            subsequent_indent=" " * 36,
        )
        for s in segments
    ]
    count = f"{len(segments)} segment{'s' if len(segments) > 1 else ''}"
    return "\n".join(
        [
            f'"""Fusion scheme {code} (value {encoding.value(code)}): a Transformer layer in {count}.',
            "",
            textwrap.fill(str(setting), _WIDTH, break_long_words=False, break_on_hyphens=False),
            "",
            "\n".join(lines),
            "",
            "`python FILE` checks it against the unfused layer in float64 and times it; FuseScope is "
            "installed by `pip install -e .`",
            'in its folder, which is the supported way to import fusescope from anywhere.\n"""',
            "",
            _imports(segments),
        ]
    )


def _imports(segments: list[Segment]) -> str:
    used = [templates.match(s.operators, True) for s in segments if s.how not in ("torch", "inductor")]
    ours = sorted({t.imports for t in used} | {"from fusescope.search.runtime import compiled, main"})
    return "\n".join(["import torch", "import torch.nn.functional as F", "", *ours, ""])


def _keywords(setting: Setting) -> str:
    return "".join(f"        {name}={value!r},\n" for name, value in setting.spec().items())


_MAIN = """if __name__ == "__main__":
    main(
        layer,
        {code!r},
{setting}    )
"""
