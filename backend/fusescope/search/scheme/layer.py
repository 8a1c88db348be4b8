"""The Transformer layer (BERT's: LayerNorm after the residual) as 15 operators, described without torch.

``unfused.py`` computes each; here stand their names, what flows between them, and what a run of them costs at
least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusescope.core.schema import check_int
from fusescope.ops.base import Cost

DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Sizes:
    """A layer's sizes, whole numbers from 1; ffn defaults to four times heads * head_dim.

    density: the share of (query, key) pairs that the mask keeps, above 0 and at most 1; None = there is no
    mask.
    """

    batch: int
    seq: int
    heads: int = 12
    head_dim: int = 64
    ffn: int | None = None
    density: float | None = None

    def __post_init__(self):
        for name in ("batch", "seq", "heads", "head_dim", "ffn"):
            if name == "ffn" and self.ffn is None:
                object.__setattr__(self, "ffn", 4 * self.hidden)
            check_int(name, getattr(self, name), 1)
        if self.density is not None and not 0 < self.density <= 1:
            raise ValueError(
                "density of a layer's mask is above 0 and at most 1, or None without a mask; not "
                f"{self.density!r}"
            )

    @property
    def hidden(self) -> int:
        """Width of the layer: heads * head_dim."""
        return self.heads * self.head_dim


@dataclass(frozen=True)
class Value:
    """Something an operator takes or gives. shape: names of ``Sizes`` or "3*hidden"; kind: "activation" (in
    the layer's dtype), "parameter" (the same), or "mask" (bool, and absent where ``Sizes.density`` is
    None)."""

    name: str
    shape: tuple[str, ...]
    kind: str = "activation"

    def dims(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape as numbers."""
        return tuple(3 * sizes.hidden if d == "3*hidden" else getattr(sizes, d) for d in self.shape)

    def bytes(self, sizes: Sizes, dtype: str) -> int:
        """What it occupies; 0 for the mask that is not there."""
        if self.kind == "mask" and sizes.density is None:
            return 0
        number = 1 if self.kind == "mask" else DTYPE_BYTES[dtype]
        for d in self.dims(sizes):
            number *= d
        return number


@dataclass(frozen=True)
class Operator:
    """One of the 15. inputs, outputs: names of ``VALUES``, in the order of its function
    ``unfused.<function>``.

    flop: operations for each element of the value ``over``: {"head_dim": 2, "": 1} is 2 * head_dim + 1;
    ``why`` says what they are. unit: the peak that applies, "matrix" or "vector". pairwise: done for each
    (query, key) pair, so that a mask leaves only its density of it to do.
    """

    number: int
    name: str
    function: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    over: str
    flop: Mapping[str, int]
    why: str
    unit: str = "vector"
    pairwise: bool = False

    @property
    def bit(self) -> int:
        """Its place in a code: bit 0 is the hand-written attention's."""
        return self.number + 1


_TOKENS, _HEADS, _PAIRS = (
    ("batch", "seq"),
    ("batch", "heads", "seq", "head_dim"),
    ("batch", "heads", "seq", "seq"),
)
VALUES = {
    v.name: v
    for v in (
        Value("x", (*_TOKENS, "hidden")),
        Value("qkv_weight", ("3*hidden", "hidden"), "parameter"),
        Value("qkv_bias", ("3*hidden",), "parameter"),
        Value("qkv_product", (*_TOKENS, "3*hidden")),
        Value("qkv", (*_TOKENS, "3*hidden")),
        *(Value(name, _HEADS) for name in ("q", "k", "v")),
        Value("scores", _PAIRS),
        Value("mask", ("seq", "seq"), "mask"),
        Value("masked_scores", _PAIRS),
        Value("probabilities", _PAIRS),
        Value("context", _HEADS),
        Value("merged", (*_TOKENS, "hidden")),
        Value("attention_weight", ("hidden", "hidden"), "parameter"),
        Value("attention_product", (*_TOKENS, "hidden")),
        Value("attention_bias", ("hidden",), "parameter"),
        Value("attention_sum", (*_TOKENS, "hidden")),
        Value("norm1_weight", ("hidden",), "parameter"),
        Value("norm1_bias", ("hidden",), "parameter"),
        Value("attended", (*_TOKENS, "hidden")),
        Value("ffn1_weight", ("ffn", "hidden"), "parameter"),
        Value("ffn1_product", (*_TOKENS, "ffn")),
        Value("ffn1_bias", ("ffn",), "parameter"),
        Value("intermediate", (*_TOKENS, "ffn")),
        Value("ffn2_weight", ("hidden", "ffn"), "parameter"),
        Value("ffn2_product", (*_TOKENS, "hidden")),
        Value("ffn2_bias", ("hidden",), "parameter"),
        Value("norm2_weight", ("hidden",), "parameter"),
        Value("norm2_bias", ("hidden",), "parameter"),
        Value("out", (*_TOKENS, "hidden")),
    )
}
"""Everything that flows, in the order in which it is first needed; weights as torch.nn.Linear holds them,
(out, in)."""

_GEMM = "a product and a sum for each term"
_NORM = "LayerNorm 8: mean 1, difference, square and sum 3, difference and three products or sums 4"


def _gemm(number, name, function, inputs, output, terms, flop=None, why=_GEMM, pairwise=False):
    return Operator(
        number, name, function, inputs, (output,), output, flop or {terms: 2}, why, "matrix", pairwise
    )


def _vector(number, name, function, inputs, outputs, flop, why, pairwise=False):
    return Operator(number, name, function, inputs, outputs, outputs[0], {"": flop}, why, pairwise=pairwise)


OPERATORS = (
    _gemm(0, "QKV GEMM", "linear", ("x", "qkv_weight"), "qkv_product", "hidden"),
    _vector(1, "QKV bias", "bias", ("qkv_product", "qkv_bias"), ("qkv",), 1, "a sum"),
    _vector(2, "head split", "head_split", ("qkv",), ("q", "k", "v"), 0, "moves only"),
    _gemm(
        3,
        "scores GEMM with scale",
        "scores",
        ("q", "k"),
        "scores",
        "head_dim",
        {"head_dim": 2, "": 1},
        _GEMM + ", the scale",
        True,
    ),
    _vector(4, "mask", "mask", ("scores", "mask"), ("masked_scores",), 0, "selects only", True),
    _vector(
        5,
        "softmax",
        "softmax",
        ("masked_scores",),
        ("probabilities",),
        5,
        "max, subtract, exp, add, scale",
        True,
    ),
    _gemm(6, "context GEMM", "context", ("probabilities", "v"), "context", "seq", pairwise=True),
    _vector(7, "head merge", "head_merge", ("context",), ("merged",), 0, "moves only"),
    _gemm(8, "output GEMM", "linear", ("merged", "attention_weight"), "attention_product", "hidden"),
    _vector(
        9,
        "output bias + residual",
        "bias_residual",
        ("attention_product", "attention_bias", "x"),
        ("attention_sum",),
        2,
        "two sums",
    ),
    _vector(
        10, "LayerNorm", "layernorm", ("attention_sum", "norm1_weight", "norm1_bias"), ("attended",), 8, _NORM
    ),
    _gemm(11, "FFN GEMM 1", "linear", ("attended", "ffn1_weight"), "ffn1_product", "hidden"),
    _vector(
        12,
        "bias + GELU",
        "bias_gelu",
        ("ffn1_product", "ffn1_bias"),
        ("intermediate",),
        6,
        "the bias, and x/2 * (1 + erf(x/sqrt 2)): three products, a sum and erf",
    ),
    _gemm(13, "FFN GEMM 2", "linear", ("intermediate", "ffn2_weight"), "ffn2_product", "ffn"),
    _vector(
        14,
        "bias + residual + LayerNorm",
        "bias_residual_layernorm",
        ("ffn2_product", "ffn2_bias", "attended", "norm2_weight", "norm2_bias"),
        ("out",),
        10,
        "two sums; " + _NORM,
    ),
)


def parameters(sizes: Sizes) -> int:
    """How many numbers the layer's weights, biases and norms hold; 7,087,872 for BERT-base."""
    return (
        sum(v.bytes(sizes, "float32") for v in VALUES.values() if v.kind == "parameter")
        // DTYPE_BYTES["float32"]
    )


def flows(numbers: Sequence[int] = range(15)) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(what these operators take from outside, what of theirs is needed outside), names of ``VALUES``, each
    once.

    numbers: operators 0-14, ascending; ValueError otherwise.
    """
    numbers = list(numbers)
    if not numbers or numbers != sorted(set(numbers)) or not set(numbers) <= set(range(len(OPERATORS))):
        raise ValueError(f"operators are ascending numbers from 0 to {len(OPERATORS) - 1}, not {numbers}")
    made = {name for i in numbers for name in OPERATORS[i].outputs}
    taken = dict.fromkeys(name for i in numbers for name in OPERATORS[i].inputs if name not in made)
    elsewhere = {name for o in OPERATORS if o.number not in numbers for name in o.inputs} | {"out"}
    return tuple(taken), tuple(name for i in numbers for name in OPERATORS[i].outputs if name in elsewhere)


def edges() -> list[tuple[int, int, str]]:
    """(from operator, to operator, value) of the layer's graph."""
    maker = {name: o.number for o in OPERATORS for name in o.outputs}
    return [(maker[name], o.number, name) for o in OPERATORS for name in o.inputs if name in maker]


def cost(numbers: Sequence[int], sizes: Sizes, dtype: str) -> Cost:
    """FLOP of these operators, and the least bytes when they are one kernel: what comes from outside read
    once, what is needed outside written once. One number gives a single operator's cost.

    The matrix unit applies where one of them is a GEMM. Effective FLOP count only the pairs that the mask
    keeps; executed all. ValueError for numbers out of order and for a dtype that is not in ``DTYPE_BYTES``.
    """
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"a layer's dtype is one of {', '.join(DTYPE_BYTES)}, not {dtype!r}")
    taken, given = flows(numbers)
    executed = effective = 0.0
    for o in (OPERATORS[i] for i in numbers):
        flop = float(_flop(o, sizes))
        executed += flop
        effective += flop * (sizes.density or 1.0) if o.pairwise else flop
    if list(numbers) == [4] and sizes.density is None:
        taken = given = ()  # without a mask the operator passes the scores on
    read, written = (float(sum(VALUES[n].bytes(sizes, dtype) for n in names)) for names in (taken, given))
    unit = "matrix" if any(OPERATORS[i].unit == "matrix" for i in numbers) else "vector"
    return Cost(
        effective,
        executed,
        read,
        written,
        unit,
        {"flop an element": {OPERATORS[i].name: OPERATORS[i].why for i in numbers}},
    )


def _flop(o: Operator, sizes: Sizes) -> int:
    elements = 1
    for d in VALUES[o.over].dims(sizes):
        elements *= d
    return elements * sum(number * (getattr(sizes, size) if size else 1) for size, number in o.flop.items())
