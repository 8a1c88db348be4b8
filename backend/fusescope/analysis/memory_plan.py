"""What memory a forward pass needs, from sizes alone: weights, activations alive at once, and the KV cache.
Bytes."""

from __future__ import annotations

from collections.abc import Mapping

BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def kv_cache(layers: int, batch: int, seq: int, kv_heads: int, head_dim: int, dtype: str) -> int:
    """Keys and values of every layer: 2 · layers · batch · seq · kv_heads · head_dim elements."""
    return 2 * layers * batch * seq * kv_heads * head_dim * _size(dtype)


def activations(
    batch: int,
    seq: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    ffn: int,
    dtype: str,
    scores: bool,
) -> int:
    """The most that one layer of an inference pass holds at once: the residual stream and its normalised
    copy, next to the larger of

    attention: Q, K, V, its output and, where ``scores`` (unfused attention), scores and probabilities of
    every head (2 · batch · heads · seq²); feed-forward: its inner activations before and after the
    non-linearity.
    """
    tokens = batch * seq
    attention = (
        tokens * (heads + 2 * kv_heads) * head_dim
        + tokens * heads * head_dim
        + (2 * batch * heads * seq * seq if scores else 0)
    )
    return (2 * tokens * hidden + max(attention, 2 * tokens * ffn)) * _size(dtype)


def predicted(
    sizes: Mapping[str, int],
    parameters: int,
    batch: int,
    tokens: int,
    dtype: str,
    scores: bool,
    cached: int = 0,
) -> dict[str, int]:
    """{"weights", "activations", "KV cache" (where ``cached``)}; sizes: layers, hidden, heads, kv_heads,
    head_dim, ffn.

    tokens: those of a sequence that one call works on (1 to decode); cached: those of a sequence whose keys
    and values are kept. ValueError for a dtype or a size that is not known.
    """
    wanted = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn")
    if missing := [k for k in wanted if not isinstance(sizes.get(k), int)]:
        raise ValueError(
            f"a prediction of memory needs {', '.join(wanted)}; {', '.join(missing)} is not known"
        )
    inner = (sizes[k] for k in ("hidden", "heads", "kv_heads", "head_dim", "ffn"))
    found = {
        "weights": parameters * _size(dtype),
        "activations": activations(batch, tokens, *inner, dtype=dtype, scores=scores),
    }
    if cached:
        found["KV cache"] = kv_cache(
            sizes["layers"], batch, cached, sizes["kv_heads"], sizes["head_dim"], dtype
        )
    return found


def _size(dtype: str) -> int:
    if dtype not in BYTES:
        raise ValueError(f"the size of a value is known for {', '.join(BYTES)}, not for {dtype!r}")
    return BYTES[dtype]
