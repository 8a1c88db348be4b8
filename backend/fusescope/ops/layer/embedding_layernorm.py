"""The embeddings of tokens, added and normed: the first step of BERT, bound by memory."""

from __future__ import annotations

from fusescope.core.schema import complete, size
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Tolerance
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, check_tensors
from fusescope.ops.common.peers import torch_peers
from fusescope.ops.common.tensors import awkward, generator_for, random_tensor, scale_tensor

NAME = "embedding_layernorm"
TITLE = "Embeddings + LayerNorm"
SUMMARY = "out[t] = LayerNorm(word[word_ids[t]] + position[position_ids[t]] + type[type_ids[t]])."
FAMILY = "embedding_layernorm"
PARAMETERS = (
    size("batch", 8, "sequences", 1 << 16, (1, 2, 8, 16)),
    size("seq", 512, "tokens per sequence, and positions", 1 << 17, (128, 256, 512, 1024, 2048)),
    size("cols", 768, "elements of an embedding", 1 << 15, (128, 256, 512, 768, 1024)),
    size("vocab", 30522, "rows of the word table", 1 << 20, (1000, 30522, 50257), sweep=False),
)
DTYPES = ("float32", "float16", "bfloat16")
EPS = 1e-12
_TYPES = 2


def tolerance(values, dtype):
    """As of bias_residual_layernorm, which has the same sum of three and norm."""
    from fusescope.ops.layer import bias_residual_layernorm

    return bias_residual_layernorm.tolerance(values, dtype)


TOLERANCE = {
    d: Tolerance(
        160 * UNIT_ROUNDOFF["float32"] + (0 if d == "float32" else 12 * UNIT_ROUNDOFF[d]),
        4 * UNIT_ROUNDOFF[d],
        "a row of 768",
    )
    for d in DTYPES
}


def validate(values):
    values = complete(NAME, PARAMETERS, values, text=True)
    tokens = values["batch"] * values["seq"]
    if (tokens + values["seq"] + values["vocab"]) * values["cols"] > 1 << 33:
        raise ValueError(
            f"result and tables hold at most 2^33 elements; {tokens} tokens of {values['cols']} "
            "elements are more"
        )
    return values


def inputs(values, dtype, device, seed, contiguous=True):
    import torch

    g = generator_for(device, seed)
    shape, cols = (values["batch"], values["seq"]), values["cols"]

    def ids(count):
        made = torch.randint(count, shape, generator=g, device=device)
        return made if contiguous else awkward(made)

    return {
        "word_ids": ids(values["vocab"]),
        "position_ids": None if contiguous else ids(values["seq"]),
        "type_ids": ids(_TYPES),
        "word": random_tensor((values["vocab"], cols), dtype, device, g, contiguous),
        "position": random_tensor((values["seq"], cols), dtype, device, g, contiguous),
        "type_": random_tensor((_TYPES, cols), dtype, device, g, contiguous),
        "weight": scale_tensor((cols,), dtype, device, g, contiguous),
        "shift": random_tensor((cols,), dtype, device, g, contiguous),
    }


_ORDER = ("word_ids", "position_ids", "type_ids", "word", "position", "type_", "weight", "shift")


def arguments(inputs):
    return (*(inputs[name] for name in _ORDER), EPS), {}


def call(inputs, impl):
    return embedding_layernorm(*arguments(inputs)[0], impl=impl)


def reference(inputs):
    args = (inputs[name] for name in _ORDER)
    wide = (t.double() if t is not None and t.is_floating_point() else t for t in args)
    return _separate(*wide, EPS)


def cost(values, dtype):
    """Word rows are read once for each different token expected, positions and types once each."""
    tokens, cols, vocab = values["batch"] * values["seq"], values["cols"], values["vocab"]
    different = vocab * (1.0 - (1.0 - 1.0 / vocab) ** tokens)
    read = (different + values["seq"] + _TYPES + 2) * cols * BYTES[
        dtype
    ] + 16 * tokens  # two int64 ids per token
    return Cost(10.0 * tokens * cols, 10.0 * tokens * cols, read, tokens * cols * BYTES[dtype])


def _separate(word_ids, position_ids, type_ids, word, position, type_, weight, shift, eps):
    import torch

    embed = torch.nn.functional.embedding
    positions = position[: word_ids.shape[-1]] if position_ids is None else embed(position_ids, position)
    s = embed(word_ids, word) + embed(type_ids, type_) + positions
    return torch.nn.functional.layer_norm(s, s.shape[-1:], weight, shift, eps)


PEERS = torch_peers(_separate, arguments, "torch.nn.functional.embedding, additions and layer_norm")


def embedding_layernorm(
    word_ids, position_ids, type_ids, word, position, type_, weight, shift, eps=EPS, *, impl="auto"
):
    """LayerNorm of the sum of a token's embeddings: (*word_ids.shape, W), in the tables' dtype; sum and norm
    in fp32.

    word_ids: int64 or int32, at least one dimension; position_ids: the same shape, or None for 0, 1, … along
    the last dimension; type_ids: the same shape, or None for type 0. word: (vocab, W); position: (positions,
    W) or None; type_: (types, W) or None; weight, shift: (W,). float32, float16 or bfloat16, on the CPU or a
    CUDA device. impl: a kernel of cuda/embedding_layernorm, or "auto": the last of the ladder that takes the
    width.

    Raises TypeError and ValueError for operands that do not fit. An id outside its table is a ValueError on
    the CPU; on CUDA, where looking would synchronise, that token's row is NaN. Nothing is read outside a
    table.
    """
    import torch

    from fusescope import kernels

    tables = {"word": word} | {
        name: t for name, t in (("position", position), ("type_", type_)) if t is not None
    }
    check_tensors(NAME, DTYPES, **tables, weight=weight, shift=shift)
    for name, t in tables.items():
        if t.dim() != 2 or t.shape[1] != word.shape[-1]:
            raise ValueError(
                f"{name} is (rows, W) with the width of word; not {tuple(t.shape)} with {tuple(word.shape)}"
            )
    for name, t in (("weight", weight), ("shift", shift)):
        if t.shape != word.shape[1:]:
            raise ValueError(
                f"{name} has shape ({word.shape[1]},), one element for each of an embedding; not "
                f"{tuple(t.shape)}"
            )
    given = {"word_ids": word_ids} | {
        n: t for n, t in (("position_ids", position_ids), ("type_ids", type_ids)) if t is not None
    }
    for name, t in given.items():
        if not isinstance(t, torch.Tensor) or t.dtype not in (torch.int32, torch.int64):
            raise TypeError(
                f"{name} is an int32 or int64 tensor, not {getattr(t, 'dtype', type(t).__name__)}"
            )
        if t.dim() < 1 or t.shape != word_ids.shape or t.device != word.device:
            raise ValueError(
                f"{name} has at least one dimension, the shape of word_ids and the tables' device; "
                f"not {tuple(t.shape)} on "
                f"{t.device} with {tuple(word_ids.shape)} and {word.device}"
            )
    for name, table in (("position_ids", position), ("type_ids", type_)):
        if name in given and table is None:
            raise ValueError(f"{name} were given, but not the table they are rows of")
    if position is not None and position_ids is None and word_ids.shape[-1] > position.shape[0]:
        raise ValueError(
            f"position has a row for each of {word_ids.shape[-1]} tokens of a sequence, not "
            f"{position.shape[0]}"
        )
    if not eps >= 0:
        raise ValueError(f"eps is at least 0, not {eps}")
    operands = (word, word_ids, position, position_ids, type_, type_ids, weight, shift, float(eps))
    if impl == "auto" and word.device.type == "cuda" and word.shape[1] > 1 << 15:
        impl = "v1_block_row"
    try:
        return kernels.call(NAME, *operands, impl=impl)
    except RuntimeError as error:
        if "outside its embedding table" not in str(error):
            raise
        raise ValueError(
            _outside(
                (word_ids, word, "word"), (position_ids, position, "position"), (type_ids, type_, "type")
            )
        ) from None


def _outside(*kinds) -> str:
    """Which ids lie outside their table, in words."""
    for ids, table, name in kinds:
        if (
            ids is not None
            and table is not None
            and ids.numel()
            and not 0 <= int(ids.min()) <= int(ids.max()) < table.shape[0]
        ):
            return (
                f"{name} ids lie between 0 and {table.shape[0] - 1}; these go from {int(ids.min())} "
                f"to {int(ids.max())}"
            )
    return "type 0 was meant by leaving out type_ids, but the type table has no rows"


def _fake(word, word_ids, position, position_ids, type_, type_ids, weight, shift, eps, impl):
    return word.new_empty((*word_ids.shape, word.shape[1]))


register_fakes({NAME: _fake})
