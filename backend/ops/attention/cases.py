"""What a case of attention is: its parameters, how they are completed and checked, and what it costs. No torch."""

from __future__ import annotations

from functools import lru_cache

from backend import masks
from backend.masks import layout
from backend.ops.base import Cost, Parameter, Tolerance, check_int

_DIMS = (32, 40, 64, 80, 96, 128, 160, 192, 256)
_SEQS = tuple(1 << k for k in range(7, 15))

PARAMETERS = (
    Parameter("batch", "int", 1, "sequences", low=1, high=1 << 16, typical=(1, 2, 4, 8, 16, 32, 64), sweep=True),
    Parameter("heads", "int", 12, "query heads", low=1, high=1 << 12, typical=(1, 2, 4, 8, 12, 16, 24, 32, 64), sweep=True),
    Parameter("kv_heads", "int", None, "KV heads, a divisor of heads; as many as heads where left out", low=1, high=1 << 12),
    Parameter("seq", "int", 512, "queries a sequence", low=1, high=1 << 20, typical=_SEQS, sweep=True),
    Parameter("seq_k", "int", None, "keys a sequence; as many as queries where left out", low=1, high=1 << 20, typical=_SEQS),
    Parameter("head_dim", "int", 64, "head size, a multiple of 8", low=32, high=256, typical=_DIMS, sweep=True),
    Parameter("mask", "mask", "full", "which keys a query sees: name[:key=value,…]; defaults depend on the length"),
    Parameter("bias", "choice", "none", "head: random scores per head added, (1, H, S_q, S_k)", choices=("none", "head")),
)
_KNOWN = {p.name: p for p in PARAMETERS}

DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {
    "float32": Tolerance(
        2e-5, 2e-5, "sums of products and exponentials in fp32: some hundred roundings of 2^-24 on values of order 1"
    ),
    "float16": Tolerance(2e-3, 2e-3, "output and probabilities rounded to fp16 (2^-11), as the fused kernels of PyTorch do"),
    "bfloat16": Tolerance(1.6e-2, 1.6e-2, "output and probabilities rounded to bf16 (2^-8), as the fused kernels of PyTorch do"),
}


def validate(values):
    """The complete case. kv_heads and seq_k are filled in; mask is its canonical text with the parameters given, no more.

    Raises ValueError for an unknown key, a size out of bounds, heads that are no multiple of kv_heads, a head size that is no
    multiple of 8, a mask that cannot be read or does not fit the sizes, and lengths for another number of sequences.
    """
    unknown = set(values) - set(_KNOWN)
    if unknown:
        raise ValueError(f"attention takes {', '.join(_KNOWN)}, not {', '.join(sorted(unknown))}")
    case = {name: p.default if values.get(name) is None else values[name] for name, p in _KNOWN.items()}
    case["kv_heads"] = case["heads"] if case["kv_heads"] is None else case["kv_heads"]
    case["seq_k"] = case["seq"] if case["seq_k"] is None else case["seq_k"]
    case |= {name: check_int(p, case[name]) for name, p in _KNOWN.items() if p.kind == "int"}
    if case["heads"] % case["kv_heads"]:
        raise ValueError(f"heads is a multiple of kv_heads; {case['heads']} is not one of {case['kv_heads']}")
    if case["head_dim"] % 8:
        raise ValueError(f"head_dim is a multiple of 8 from 32 to 256, not {case['head_dim']}")
    if case["bias"] not in _KNOWN["bias"].choices:
        raise ValueError(f"bias is {' or '.join(_KNOWN['bias'].choices)}, not {case['bias']!r}")
    mask = masks.parse(case["mask"])
    mask.bind(case["seq"], case["seq_k"])
    if mask.sequences not in (None, case["batch"]):
        raise ValueError(f"mask {mask} gives lengths for {mask.sequences} sequences, batch is {case['batch']}")
    return case | {"mask": str(mask)}


def cost(values, dtype):
    """Two products of 2·D operations a score: over live elements (effective), and over 64 × 64 tiles with any (executed).

    Bytes: q, k, v (as many KV heads as there are), bias and out once each; the mask's lists are not counted.
    """
    b, h, d, sq, sk = (values[n] for n in ("batch", "heads", "head_dim", "seq", "seq_k"))
    live, executed, sequences = _counts(values["mask"], sq, sk)
    copies = b * h / sequences
    size = 4 if dtype == "float32" else 2
    read = size * d * b * (h * sq + 2 * values["kv_heads"] * sk) + (size * h * sq * sk if values["bias"] == "head" else 0)
    notes = {"density": live / (sequences * sq * sk), "live_share": executed / (sequences * sq * sk)}
    return Cost(4 * d * live * copies, 4 * d * executed * copies, read, size * d * b * h * sq, "matrix", notes)


@lru_cache(maxsize=256)
def _counts(mask: str, seq_q: int, seq_k: int) -> tuple[int, int, int]:
    """(live elements, elements in live tiles, sequences) of a mask, all its sequences together."""
    cut = layout.tiles(masks.parse(mask), seq_q, seq_k)
    return cut.kept, cut.executed, cut.elements // (seq_q * seq_k)
