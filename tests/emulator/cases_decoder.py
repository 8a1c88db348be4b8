"""Cases of the operators of a decoder's layer."""

from __future__ import annotations

from tests.attention import step_tools
from tests.emulator.cases import Case, Emulation, through_function
from tests.ops import decoder_layers_tools
from tests.ops.rope_tools import what_is_wrong, what_is_wrong_in_fp8
from tests.ops.weight_only_tools import every_weight_is_wrong

ROWS = (1, 7, 250, 520, 1000, 2056, 4096, 5000, 9000, 17000, 17001)
"""A length for every way a row is distributed over threads, with and without whole 16-byte packs."""


def _rmsnorm_residual(impl):
    for i, cols in enumerate(ROWS):
        yield Case({"rows": (3, 1, 5)[i % 3], "cols": cols, "residual": ("yes", "no")[i % 2]}, 2)
    for cols, residual in ((400, "yes"), (600, "yes"), (1024, "yes"), (1024, "no"), (3000, "yes")):
        yield Case({"rows": 6, "cols": cols, "residual": residual}, 1, True, sms=1)  # more rows than few
    for cols, rows in (
        (64, 5),
        (40, 131),
        (128, 150),
        (104, 9),
        (256, 133),
    ):  # parts of a warp, several rows each
        for residual in ("yes", "no"):
            yield Case({"rows": rows, "cols": cols, "residual": residual}, 1, True, sms=1)
    for sms in (1, 3):  # several rows per thread, and one
        yield Case({}, 3, True, sms=sms)


def _rmsnorm_residual_run(op, impl, values, dtype, contiguous, seed):
    """Without values: rows that are heads of packed products, of x and of the residual with other strides."""
    if values:
        return through_function(op, impl, values, dtype, contiguous, seed)
    import torch

    from fusescope.ops.layer.rmsnorm_residual import rmsnorm_residual

    g = torch.Generator().manual_seed(seed)
    packed, other, weight = (
        torch.randn(shape, generator=g).to(getattr(torch, dtype))
        for shape in ((5, 9, 8, 64), (5, 9, 3, 72), (64,))
    )
    near = max(torch.finfo(packed.dtype).eps, 1e-6)
    for x, residual in ((packed[:, :, 1:4], None), (packed[:, :, 5:], other[..., 8:])):
        total = x.double() if residual is None else x.double() + residual.double()
        right = total * (total.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.double()
        found = rmsnorm_residual(x, weight, residual, 1e-6, impl=impl)
        for name, one, double in zip(("out", "sum"), found, (right, total)):
            if one is not None and not torch.allclose(one.double(), double, rtol=near, atol=1e-6):
                return f"{name} of packed heads, residual {residual is not None}"
    return None


def _swiglu(impl):
    for i, cols in enumerate((1, 7, 33, 64, 776)):
        values = {"rows": (1, 5, 70)[i % 3], "cols": cols, "layout": ("packed", "apart")[i % 2]}
        yield Case(values, 2)
    yield Case({"rows": 30, "cols": 2048, "layout": "packed"}, 1, True, sms=1)  # several rows for each thread


def _rope_cache(impl):
    for batch, tokens, heads, kv_heads, head_dim, room, page in (
        (1, 1, 1, 1, 2, 1, "none"),
        (3, 1, 4, 2, 64, 40, "none"),
        (2, 5, 6, 2, 80, 30, "16"),
        (2, 3, 2, 1, 10, 300, "256"),
        (1, 2, 70, 35, 128, 9, "none"),  # more heads than are in flight at once
    ):
        values = {
            "batch": batch,
            "tokens": tokens,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
        }
        for contiguous in (True, False):
            yield Case(values | {"seq_max": room, "page": page}, 1, contiguous)
    for batch, sms in ((1, 7), (3, 7)):  # several blocks per token
        few = {"batch": batch, "tokens": 1, "heads": 70, "kv_heads": 35, "head_dim": 128}
        yield Case(few | {"seq_max": 9, "page": "none"}, 2, True, sms=sms)
    yield Case({}, 3, True)
    if impl == step_tools.ROPE_CACHE:
        for number in range(len(step_tools.CASES)):
            yield Case({"step": number}, 2, number % 2 == 0)


def _rope_cache_run(op, impl, values, dtype, contiguous, seed):
    """Without values: what lies outside, partial rotation, other forms of angles. step: the bits that a step
    in attention's launch gives too."""
    if "step" in values:
        given = step_tools.CASES[values["step"]]
        case = step_tools.make(**given, dtype=dtype, seed=seed, strided=not contiguous)
        return step_tools.wrong_write(case, impl)
    if values:
        return through_function(op, impl, values, dtype, contiguous, seed)
    import torch

    dtype = getattr(torch, dtype)
    return what_is_wrong(impl, dtype, seed=seed) or what_is_wrong_in_fp8(impl, dtype, seed=seed)


def _linear_weight_only(impl):
    """Both formats; tails of rows, outputs and columns, rows that are 16-byte vectors and not."""
    for i, (rows, inputs, outputs) in enumerate(
        ((1, 7, 1), (1, 528, 9), (2, 48, 33), (3, 100, 20), (7, 1040, 18), (16, 80, 40), (17, 32, 5))
    ):
        values = {
            "rows": rows,
            "inputs": inputs,
            "outputs": outputs,
            "activation": ("none", "gelu", "gelu_tanh")[i % 3],
            "residual": ("yes", "no")[i % 2],
        }
        for weight in ("int8", "fp8"):
            yield Case(values | {"weight": weight}, 2, i % 3 != 0)
    for weight, rows in (("int8", 3), ("fp8", 12)):  # two tiles of outputs per block, several steps in flight
        values = {"rows": rows, "inputs": 2128, "outputs": 70, "weight": weight}
        yield Case(values, 1, True, sms=1)
    yield Case({}, 3, True)


def _linear_weight_only_run(op, impl, values, dtype, contiguous, seed):
    """Without values: every number of each format comes through as it is, NaN too."""
    if values:
        return through_function(op, impl, values, dtype, contiguous, seed)
    return every_weight_is_wrong(impl, dtype)


def _decoder_layers(impl):
    """Each kind, 1 to 8 sequences, 1 to 8 query heads per KV head, few and several hundred keys, one
    block and several."""
    for i, (layer, batch, heads, kv_heads, head_dim, cached) in enumerate(
        (
            ("gpt2", 1, 2, 2, 64, 0),
            ("llama", 2, 4, 2, 64, 1),
            ("qwen3", 3, 2, 1, 128, 100),
            ("gpt2", 8, 3, 3, 64, 37),
            ("llama", 5, 3, 1, 64, 100),
            ("qwen3", 7, 8, 1, 64, 65),
            ("llama", 4, 4, 1, 128, 31),
            ("gpt2", 6, 1, 1, 128, 1),
            ("llama", 1, 8, 8, 64, 300),
            ("qwen3", 1, 4, 1, 64, 700),
            ("gpt2", 1, 2, 2, 128, 511),
        )
    ):
        values = {"layer": layer, "batch": batch, "layers": 2 + i % 2, "heads": heads, "kv_heads": kv_heads}
        sizes = {"width": (64, 128, 192)[i % 3], "ffn": (256, 128, 192)[i % 3], "head_dim": head_dim}
        when = "early" if i % 3 == 1 else "late"
        yield Case(values | sizes | {"cached": cached}, 1, True, when, (1, 3, 7, 2)[i % 4])
    few = {"batch": 3, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 64, "width": 160, "ffn": 352}
    for layer, twist in zip(("gpt2", "llama", "qwen3", "qwen3"), decoder_layers_tools.TWISTS):
        yield Case(few | {"layer": layer, "cached": 40, "twist": twist}, 1, True, sms=2)
    for layer, when in (("gpt2", "late"), ("llama", "early")):  # more weights than are in flight at once
        yield Case(few | {"layer": layer, "cached": 9, "width": 544, "ffn": 1056}, 1, True, when, 1)
    uneven = {"layer": "llama", "batch": 2, "layers": 2, "heads": 2, "head_dim": 80, "cached": 20}
    yield Case(uneven | {"width": 72, "ffn": 104}, 1, False)
    for cached, sms in ((0, 1), (70, 3), (500, 16)):
        yield Case({"each_key": cached}, 2, True, sms=sms)
    yield from _decoder_layers_in_eight_bits()


def _decoder_layers_in_eight_bits():
    """1 to 8 sequences, heads of both sizes, and widths that are multiples of 32 but of nothing larger."""
    for i, (layer, batch, heads, kv_heads, head_dim, width, ffn, cached) in enumerate(
        (
            ("gpt2", 1, 2, 2, 64, 96, 352, 0),
            ("llama", 2, 4, 2, 64, 160, 96, 37),
            ("qwen3", 3, 2, 1, 128, 96, 160, 100),
            ("gpt2", 4, 1, 1, 128, 224, 96, 1),
            ("llama", 5, 3, 1, 64, 96, 288, 300),
            ("qwen3", 6, 8, 1, 64, 96, 96, 31),
            ("llama", 7, 2, 2, 128, 160, 160, 65),
            ("gpt2", 8, 3, 3, 64, 96, 224, 9),
            ("llama", 1, 2, 1, 128, 1056, 2080, 20),  # more weights than are in flight at once
            ("gpt2", 2, 2, 2, 64, 1088, 352, 5),
        )
    ):
        values = {"layer": layer, "batch": batch, "layers": 2, "heads": heads, "kv_heads": kv_heads}
        values |= {"head_dim": head_dim, "width": width, "ffn": ffn, "cached": cached}
        for n, weight in enumerate(("int8", "fp8")):
            when = "early" if (i + n) % 3 == 1 else "late"
            dtypes, sms = 2 if width < 1000 else 1, (1, 3, 7, 2)[(i + n) % 4]
            yield Case(values | {"weights": weight}, dtypes, True, when, sms)
    for batch, sms in ((1, 3), (3, 1)):
        yield Case({"every_weight": batch}, 1, True, sms=sms)


def _decoder_layers_run(op, impl, values, dtype, contiguous, seed):
    """A single sequence as inputs() has it, then several of different lengths. each_key: the new token sees
    so many keys, and half of them. every_weight: every number of 8 bits, of so many sequences."""
    if "each_key" in values:
        return decoder_layers_tools.does_not_see_each_key_once(impl, dtype, values["each_key"])
    if "every_weight" in values:
        every = {"batch": values["every_weight"], "columns": (0, 5, 10, 15)}  # each byte of a word
        return decoder_layers_tools.every_weight_is_wrong(impl, dtype, **every)
    wrong, (twist, values) = (
        None,
        (values.get("twist", ""), {n: v for n, v in values.items() if n != "twist"}),
    )
    if values["batch"] == 1:
        wrong = through_function(op, impl, values, dtype, contiguous, seed)
    return wrong or decoder_layers_tools.what_is_wrong(impl, values, dtype, "cpu", seed, contiguous, twist)


EMULATIONS = {
    "decoder_layers": Emulation(_decoder_layers, _decoder_layers_run),
    "linear_weight_only": Emulation(_linear_weight_only, _linear_weight_only_run),
    "rmsnorm_residual": Emulation(_rmsnorm_residual, _rmsnorm_residual_run),
    "swiglu": Emulation(_swiglu, through_function),
    "rope_cache": Emulation(_rope_cache, _rope_cache_run),
}
