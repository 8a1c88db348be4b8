"""What "masked is unseen" means, as checks for any attention kernel: of the CPU, on a GPU, or emulated.

A check calls ``run(inputs)`` with a case's inputs and returns what is wrong, or None. Whatever K, V and the
bias hold at keys that a row does not see, NaN and infinities included, the row's result is that of the
reference; a row that does see such a key is not finite; a row that sees no key is zeros.
"""

from __future__ import annotations

import math

import torch

from fusescope.ops.attention.describe.inputs import dense_rows
from fusescope.ops.attention.plan import padding
from tests.attention import decode_tools, varlen_tools
from tests.attention.attention_tools import OP

CASES = (
    {"seq": 130, "mask": "causal"},
    {"seq": 65, "seq_k": 33, "mask": "causal"},  # the first rows see no key
    {"seq": 70, "seq_k": 130, "mask": "padding:lengths=66+3"},
    {"seq": 33, "seq_k": 130, "mask": "random:density=0.03", "head_dim": 40},
    {"seq": 130, "mask": "sliding_window:left=9,right=3", "head_dim": 64},
    {"seq": 128, "mask": "strided:window=5,stride=8", "head_dim": 96},
    {"seq": 70, "mask": "document:lengths=20+50", "head_dim": 128},
    {"seq": 200, "mask": "sliding_window:left=20,right=3", "head_dim": 64},
)
SPOILS = (math.nan, math.inf, -math.inf)
HUGE = 3e38  # near the largest number of fp32 and bf16: times log2 e it is beyond it


def keys(run, values: dict, dtype: str, device: str) -> str | None:
    """NaN and infinities in K at some keys of each sequence."""
    return _spoilt(run, "k", values, dtype, device)


def values(run, values: dict, dtype: str, device: str, spoils=SPOILS) -> str | None:
    """The same in V."""
    return _spoilt(run, "v", values, dtype, device, spoils)


def _spoilt(run, name: str, values: dict, dtype: str, device: str, spoils=SPOILS) -> str | None:
    inputs = _inputs(values, dtype, device)
    at = torch.zeros(inputs["k"].shape[0], inputs["k"].shape[2], dtype=torch.bool, device=device)
    for b, row in enumerate(at):
        row[[row.numel() - 1 - b, row.numel() // 2 + b]] = True
    seen = (_keep(inputs) & at[:, None, None]).any(-1)
    clean, *given = (
        inputs | {name: inputs[name].masked_fill(at[:, None, :, None], to)} for to in (0, *spoils)
    )
    reference = OP.reference(clean)
    for spoil, spoilt in zip(spoils, given):
        if reason := _judge(run(spoilt), reference, seen, dtype):
            return f"{spoil}: {reason}"
    return None


def bias(run, values: dict, dtype: str, device: str) -> str | None:
    """NaN and infinities in the bias at masked keys."""
    inputs = _inputs(values, dtype, device)
    masked = ~_keep(inputs)
    for clean in _biases(inputs):
        reference = OP.reference(inputs | {"bias": clean})
        for spoil in SPOILS:
            out = run(inputs | {"bias": clean.masked_fill(masked, spoil)})
            if reason := _judge(out, reference, None, dtype):
                return f"{spoil}, bias of {clean.dtype}: {reason}"
    return None


def masking_bias(run, values: dict, dtype: str, device: str) -> str | None:
    """A bias of −inf masks its key: V is NaN there."""
    inputs = _inputs(values, dtype, device)
    masked = torch.zeros(inputs["k"].shape[2], dtype=torch.bool, device=device)
    masked[-1] = masked[masked.numel() // 3] = True
    v, spoilt = (inputs["v"].masked_fill(masked[:, None], value) for value in (0, math.nan))
    for bias in _biases(inputs):
        clean = inputs | {"bias": bias.masked_fill(masked, -math.inf), "v": v}
        if reason := _judge(run(clean | {"v": spoilt}), OP.reference(clean), None, dtype):
            return f"bias of {bias.dtype}: {reason}"
    return None


def huge_bias(run, values: dict, dtype: str, device: str) -> str | None:
    """Biases near the end of fp32's range: equal ones in a whole row give the mean, larger ones win."""
    inputs = _inputs(values, dtype, device)
    keys = inputs["k"].shape[2]
    lowest = torch.finfo(torch.float32).min
    rows = [torch.full((keys,), value) for value in (-2.4e38, -HUGE, lowest, HUGE)]
    rows.append(torch.where(torch.arange(keys) % 3 > 0, -HUGE, HUGE))
    for row in rows:
        given = inputs | {"bias": row.to(device).expand(2, 1, inputs["q"].shape[2], keys)}
        if reason := _judge(run(given), OP.reference(given), None, dtype):
            return f"a bias of {sorted(set(row.tolist()))}: {reason}"
    return None


def cleared_padding(run, values: dict, dtype: str, device: str) -> str | None:
    """K and V that hold NaN and infinities at keys that no row sees, after ``padding.clear``."""
    inputs = _inputs(values, dtype, device)
    unseen = ~_keep(inputs).any(2)[:, :, :, None]
    clean = inputs | {name: inputs[name].masked_fill(unseen, 0) for name in "kv"}
    reference = OP.reference(clean)
    for spoil in SPOILS if bool(unseen.any()) else ():
        k, v = (inputs[name].masked_fill(unseen, spoil) for name in "kv")
        k, v = padding.clear(k, v, inputs["plan"])
        if reason := _judge(run(inputs | {"k": k, "v": v}), reference, None, dtype):
            return f"{spoil}: {reason}"
    return None


def packed(run, sees: dict, dtype: str, device: str) -> str | None:
    """NaN and infinities in the last keys of packed sequences, which under causal and within a window few
    rows see, and in rows of no sequence. run: of a ``varlen_tools.Packed``; sees: its causal and window."""
    queries, keys = (70, 0, 33, 129), (130, 9, 0, 65)
    case = varlen_tools.make(queries, keys, dtype, (2, 1), 40, more=5, device=device, **sees)
    q, k, v, *offsets = case.args
    spoilt = torch.tensor([case.cu_k[i + 1] - 1 - i for i in (0, 3)] + [case.cu_k[-1]], device=device)
    clean = [t.clone().index_fill_(0, spoilt, 0) for t in (k, v)]
    reference = varlen_tools.specified(q, *clean, case.cu_q, case.cu_k, case.causal, case.window)
    seen = torch.zeros(q.shape[0], dtype=torch.bool, device=device)
    for b, key in ((0, keys[0] - 1), (3, keys[3] - 1 - 3)):
        behind = torch.arange(queries[b], device=device) + keys[b] - queries[b] - key
        left, right = case.window or (keys[b], 0 if case.causal else queries[b])
        seen[case.cu_q[b] : case.cu_q[b + 1]] = (behind <= left) & (behind >= -right)
    for spoil in SPOILS:
        case.args = (q, *(t.clone().index_fill_(0, spoilt, spoil) for t in (k, v)), *offsets)
        out = run(case)
        if not bool(out[seen].isfinite().logical_not().all()):
            return f"{spoil}: a row that sees it is finite"
        out = out.where(~seen[:, None, None], reference.to(out.dtype))
        if reason := varlen_tools.compare(out, reference, varlen_tools.TOLERANCE[dtype]).reason:
            return f"{spoil}: {reason}"
    return neighbours(run, sees, dtype, device)


def neighbours(run, sees: dict, dtype: str, device: str) -> str | None:
    """NaN and infinities in another sequence, whose rows lie in the same tile, change no bit."""
    for dim in (64, 128):
        case = varlen_tools.make((70, 30, 70), (70, 30, 70), dtype, (2, 1), dim, device=device, **sees)
        right = run(case)
        for t, spoil in zip(case.args, (math.nan, math.nan, math.inf)):
            t[70:100] = spoil
        out = run(case)
        if not (torch.equal(out[:70], right[:70]) and torch.equal(out[100:], right[100:])):
            return f"what another sequence holds changes results of {dim} columns"
    return None


def decoding(run, given: dict, dtype: str, device: str) -> str | None:
    """NaN and infinities (in e4m3, which has none, NaN alone) in V at the newest key of each sequence, which
    the last token alone sees, and at the oldest, which with a window the first alone sees. run: of a
    ``decode_tools.DecodeCase``."""
    case = decode_tools.make(**given, dtype=dtype, device=device)
    seen, v, page = decode_tools.sees(case), case.v, given.get("page", 0)
    at = {b: {n - 1} for b, n in enumerate(given["lengths"])}
    for b, keys in at.items():
        keys |= {int(seen[b, 0].nonzero()[0])} if "window" in given else set()
    spoilt = torch.stack([seen[b][:, list(keys)].any(1) for b, keys in at.items()])
    if bool(spoilt.all(1).any()):
        return "this case has a sequence whose tokens all see it"
    rows = spoilt[:, None].expand(case.q.shape[:3])
    for spoil in SPOILS if v.element_size() > 1 else (math.nan,):
        case.v = v.clone()
        for b, key in ((b, key) for b, keys in at.items() for key in keys):
            place = (int(case.options["block_table"][b, key // page]), key % page) if page else (b, key)
            case.v[place[0], :, place[1]] = spoil
        out = run(case).cpu()
        if not bool(out[rows].isfinite().logical_not().all()):
            return f"{spoil}: a token that sees it is finite"
        clean = out.where(~rows[..., None], decode_tools.reference(case).to(out.dtype))
        if reason := decode_tools.wrong(clean, case):
            return f"{spoil}: {reason}"
    return None


def decoding_bias(run, given: dict, dtype: str, device: str) -> str | None:
    """A bias of −inf for one head and token, where V is NaN, masks the key for those alone; biases near the
    end of fp32's range give the mean of the keys that have the largest. run: as of ``decoding``."""
    case = decode_tools.make(**given | {"bias": "bhts float32"}, dtype=dtype, device=device)
    clean, key = case.options["bias"], 5
    masking = clean.clone()
    masking[0, 1, 0, key] = -math.inf
    spoilt = torch.zeros(case.q.shape[:3], dtype=torch.bool)
    spoilt[0] = decode_tools.sees(case)[0, :, key]
    spoilt[0, 1, 0] = False
    v = case.v
    case.options["bias"], case.v = masking, v.clone()
    case.v[0, :, key] = math.nan
    out = run(case).cpu()
    if not bool(out[spoilt].isfinite().logical_not().all()):
        return "a token that sees the key is finite"
    out = out.where(~spoilt[..., None], decode_tools.reference(case).to(out.dtype))
    if reason := decode_tools.wrong(out, case):
        return reason
    case.v = v
    for low in (-2.4e38, -HUGE, torch.finfo(torch.float32).min):
        case.options["bias"] = torch.where(clean == -math.inf, clean, low)
        case.options["bias"][..., 1::5] = HUGE if low == -HUGE else low
        case.options["bias"] = case.options["bias"].masked_fill(clean == -math.inf, -math.inf)
        if reason := decode_tools.wrong(run(case), case):
            return f"a bias of {low:g}: {reason}"
    return None


DECODING = {
    "tokens": {"lengths": (70, 40), "heads": (4, 2), "dim": 64, "tokens": 3},
    "window": {"lengths": (130, 64), "heads": (8, 1), "dim": 96, "tokens": 4, "window": 20, "page": 16},
    "many_rows": {"lengths": (90,), "heads": (12, 1), "dim": 128, "tokens": 8, "window": 33},
    "fp8": {
        "lengths": (130, 64),
        "heads": (8, 1),
        "dim": 96,
        "tokens": 4,
        "window": 20,
        "page": 16,
        "fp8": True,
    },
    "fp8_many_rows": {"lengths": (90,), "heads": (12, 1), "dim": 128, "tokens": 8, "window": 33, "fp8": True},
}
"""Cases of ``decoding``."""
DECODING_BIAS = {
    "decoding_bias": {"lengths": (70, 40), "heads": (4, 2), "dim": 64, "tokens": 3, "sinks": True},
    "decoding_bias_of_one": {"lengths": (150,), "heads": (12, 1), "dim": 96, "softcap": 5.0},
    "decoding_bias_fp8": {"lengths": (70, 40), "heads": (9, 1), "dim": 128, "alibi": True, "fp8": True},
}
"""Cases of ``decoding_bias``."""
DENSE = {check.__name__: check for check in (keys, values, bias, masking_bias, huge_bias, cleared_padding)}
PACKED = {"packed": {}, "packed_causal": {"causal": True}, "packed_window": {"window": (40, 20)}}
"""Names of checks: what a query sees of its sequence."""


def _inputs(values: dict, dtype: str, device: str) -> dict:
    """Inputs of a case with two sequences and a KV head for two query heads."""
    case = OP.validate({"batch": 2, "heads": 2, "kv_heads": 1, "head_dim": 32} | values)
    return OP.inputs(case, dtype, device, 0)


def _biases(inputs: dict) -> list:
    """Random biases (B, 1, S_q, S_k), of q's dtype and of float32."""
    q, k = inputs["q"], inputs["k"]
    shape = (q.shape[0], 1, q.shape[2], k.shape[2])
    return [torch.randn(shape, device=q.device).to(kind) for kind in {q.dtype, torch.float32}]


def _keep(inputs):
    """The mask, bool (1 or B, 1, S_q, S_k)."""
    q, k = inputs["q"], inputs["k"]
    return dense_rows(inputs["mask"], q.shape[2], k.shape[2], (0, q.shape[2]), q.device)


def _judge(out, reference, seen, dtype: str) -> str | None:
    """Whether rows that see no spoilt key are those of the reference, which is of clean inputs. seen: bool
    (B, 1, S_q), or None."""
    if out.shape != reference.shape or not out.is_contiguous():
        return f"shape {tuple(out.shape)}, strides {out.stride()}"
    if seen is not None:
        rows = seen.expand(out.shape[:3])
        if not bool(out[rows].isfinite().logical_not().any(-1).all()):
            return "a row that sees it is finite"
        if bool(rows.all()):
            return "this case has no row that sees none"
        out, reference = (t.masked_fill(rows[..., None], 0) for t in (out, reference))
    return varlen_tools.compare(out, reference, OP.TOLERANCE[dtype]).reason
