"""All layers of a decoder in one call: against Hugging Face's and our layers, what is written and what is
not, and exact errors."""

import json

import pytest
import torch

from fusescope import kernels, ops
from fusescope.core import paths
from fusescope.core.errors import Unsupported
from fusescope.core.schema.cases import value, varying_values
from fusescope.measure.checking.check import Case
from fusescope.models.run.decoder.layers import Layers
from fusescope.ops.attention import attention_decode_step
from fusescope.ops.decoder.layer import MATRICES
from fusescope.ops.layer.decoder_layers import DecoderLayer, decoder_layers
from tests.models.tiny_models import built
from tests.ops import decoder_layers_tools as tools

NAME = "decoder_layers"
SMALL = dict(batch=3, layers=2, width=72, heads=4, kv_heads=2, head_dim=32, ffn=136, cached=70)
TAKEN = dict(width=96, ffn=160, head_dim=64)  # by kernels for 16 bits too
DTYPES = ops.load(NAME).DTYPES
KINDS = ("gpt2", "llama", "qwen3")
WEIGHTS = ("as x", "int8", "fp8")
RECORDED = "20261128-183121-bench-ef3910"  # its cases say nothing of the weights


def impl_of(device):
    return kernels.choose(NAME, device)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_implementation_is_right(kind, dtype, weight):
    module = ops.load(NAME)
    case = Case(module, module.validate(SMALL | {"layer": kind, "weights": weight}), dtype, "cpu", seed=1)
    for impl in ("cpu", "eager", "operators"):
        assert case.verify(ops.make(NAME, impl, case.inputs)).reason is None, impl


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_outside_is_nan_and_nothing_else_is_written(kind, dtype, weight, device):
    if device == "cuda" and dtype == "float32":
        pytest.skip("all layers in one launch are float16 and bfloat16")
    given = {"layer": kind, "batch": 8, "cached": 37, "weights": weight} | (TAKEN if device == "cuda" else {})
    for contiguous in (True, False) if device == "cpu" else (True,):
        found = tools.what_is_wrong(impl_of(device), SMALL | given, dtype, device, 5, contiguous)
        assert found is None


@pytest.mark.parametrize(("kind", "twist"), list(zip((*KINDS, "qwen3"), tools.TWISTS)))
def test_what_no_kind_of_layer_has(kind, twist, device):
    values = SMALL | TAKEN | {"layer": kind}
    dtype = "float32" if device == "cpu" else "float16"
    assert tools.what_is_wrong(impl_of(device), values, dtype, device, 6, twist=twist) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_of_either_format_comes_through(dtype, device):
    if device == "cuda" and dtype == "float32":
        pytest.skip("all layers in one launch are float16 and bfloat16")
    for batch in (1, 3):
        assert tools.every_weight_is_wrong(impl_of(device), dtype, device, batch) is None


@pytest.mark.parametrize("weight", ["int8", "fp8"])
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_in_eight_bits_are_each_weight_and_scale_once(kind, weight):
    module = ops.load(NAME)
    case, full = (module.validate(SMALL | {"layer": kind, "weights": w}) for w in (weight, "as x"))
    given, whole = (module.inputs(values, "float16", "cpu", 0) for values in (case, full))
    of_weights = [
        sum(found[name].nbytes for name in DecoderLayer._fields if name in found) for found in (given, whole)
    ]
    assert all(given[name].element_size() == 1 for name in MATRICES)
    fewer = module.cost(full, "float16").bytes_read - module.cost(case, "float16").bytes_read
    assert fewer == of_weights[1] - of_weights[0]


def test_cases_of_older_runs_stay_theirs():
    """Those have no weight: it is left out where it is as x, so the same case has the same key."""
    folder = paths.CHECKOUT / "profiles" / "recorded" / RECORDED
    cases = json.loads((folder / "run.json").read_text())["spec"]["cases"]
    module = ops.load(NAME)
    assert cases and all(module.validate(case) == case for case in cases)
    assert module.validate(cases[0] | {"weights": "as x"}) == cases[0]
    assert value(cases[0], "weights") == "as x"
    assert varying_values([cases[0], cases[0] | {"weights": "fp8"}]) == {"weights": ["as x", "fp8"]}


@pytest.mark.parametrize("cached", [0, 1, 31, 32, 33, 200])
def test_each_key_is_seen_once(cached, device):
    for dtype in DTYPES if device == "cpu" else ("float16", "bfloat16"):
        assert tools.does_not_see_each_key_once(impl_of(device), dtype, cached, device=device) is None


@pytest.mark.parametrize("name", ["gpt2", "llama-small", "mistral-7b", "qwen2.5-7b", "qwen3-0.6b"])
def test_a_step_is_that_of_our_layers_and_of_hugging_face(name):
    model, tokens = built(name), 9
    layers, c = Layers(model.family, model.config, model.module), model.config
    ids = torch.randint(1, 50, (2, tokens), generator=torch.Generator().manual_seed(3))
    shape = c.layers, 2, c.kv_heads or c.heads, 12, c.head_dim
    caches, how = [torch.zeros(shape) for _ in "kv"], {"check": False}
    with torch.no_grad():
        for at in range(tokens):
            before = [t.clone() for t in caches]
            place = torch.full((2,), at)

            lengths = place.int() + 1

            def attend(i, q, k, v, angles, at=place, lengths=lengths):
                return attention_decode_step(q, k, v, angles, at, *(t[i] for t in caches), lengths, **how)

            x = layers.embed(ids[:, at : at + 1], place[:, None])
            right = layers(x, place[:, None], attend)
        out, *written = decoder_layers(
            x,
            layers.one_launch.layers,
            *(t.unbind() for t in before),
            layers.angles(place[:, None]),
            place,
            heads=c.heads,
            kv_heads=c.kv_heads or c.heads,
            activation="swiglu" if c.activation == "silu" else c.activation,
            eps=c.eps,
        )
        normed = layers._norm("norm", out)
        logits = model.module(input_ids=ids).logits[:, -1]
    torch.testing.assert_close(normed, right, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(layers.logits(normed)[:, 0], logits, rtol=1e-4, atol=1e-4)
    for one, other in zip(written, caches):
        torch.testing.assert_close(torch.stack(list(one)), other, rtol=1e-4, atol=1e-4)


def _given(kind="qwen3", weight="as x", **more):
    """Good arguments by name."""
    module = ops.load(NAME)
    values = module.validate(SMALL | {"layer": kind, "weights": weight})
    inputs = module.inputs(values, "float32", "cpu", seed=2)
    given, how = module.arguments(inputs)
    names = ("x", "layers", "k_caches", "v_caches", "cos_sin", "places")
    return dict(zip(names, given)) | how | more


def _with(weight="as x", **weights):
    given = _given(weight=weight)
    given["layers"][1] = given["layers"][1]._replace(**weights)
    return given


def _layer_of(weight):
    return _given(weight=weight)["layers"][1]._asdict()


def _of_dtype(dtype):
    given = _given(weight="int8")
    for i, one in enumerate(given["layers"]):
        given["layers"][i] = one._replace(**{name: getattr(one, name).to(dtype) for name in MATRICES})
    return given


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (
            lambda: _given(x=torch.zeros(3, 2, 72)),
            ValueError,
            r"x is \(B, width\) or \(B, 1, width\).*\(3, 2, 72\)",
        ),
        (lambda: _given(x=torch.zeros(3, 72).double()), TypeError, "takes float32, float16, bfloat16"),
        (lambda: _given(heads=3), ValueError, "3 is not one of 2"),
        (lambda: _given(heads=0), ValueError, "at least 1, not 0"),
        (lambda: _given(activation="relu"), ValueError, "gelu, gelu_tanh, swiglu; not 'relu'"),
        (lambda: _given(eps=-1.0), ValueError, "eps is a finite number, at least 0, not -1.0"),
        (lambda: _given(layers=[]), ValueError, "at least one layer.*not 0 layers, 2 and 2 caches"),
        (lambda: _given(layers=[3, 4]), TypeError, "layer 0 is a DecoderLayer or a mapping, not int"),
        (lambda: _given(layers=[{"gate": 1}, {}]), ValueError, "layer 0 has no weight gate"),
        (lambda: _with(qkv=None), ValueError, "layer 1 lacks qkv"),
        (lambda: _with(q_norm=None), ValueError, "layer 1 has q_norm or k_norm; it has both or neither"),
        (
            lambda: _with(output=torch.zeros(72, 64)),
            ValueError,
            r"output of layer 1 has shape \(72, 128\), not",
        ),
        (
            lambda: _with(first=torch.zeros(136, 72)),
            ValueError,
            r"first of layer 1 has shape \(272, 72\), not",
        ),
        (lambda: _with(qkv=torch.zeros(72, 256).t()), ValueError, "qkv of layer 1 is not contiguous"),
        (lambda: _with(norm1=torch.zeros(72).half()), ValueError, "one dtype and device.*norm1 of layer 1"),
        (
            lambda: _with("int8", first_scales=torch.ones(136)),
            ValueError,
            r"first_scales of layer 1 are float32 of shape \(272,\).*not torch.float32 \(136,\)",
        ),
        (lambda: _with("fp8", qkv_scales=torch.ones(256).double()), ValueError, "not torch.float64"),
        (lambda: _with("int8", qkv_scales=torch.ones(512)[::2]), ValueError, "scales of layer 1 are contig"),
        (lambda: _with("int8", second_scales=None), ValueError, "layer 1 lacks second_scales"),
        (lambda: _with("int8", second_scales=[1.0]), TypeError, "second_scales of layer 1 is list"),
        (lambda: _with(second_scales=torch.ones(72)), ValueError, "layer 1 has second_scales"),
        (
            lambda: _with("int8", output=torch.zeros(72, 128).to(torch.float8_e4m3fn)),
            ValueError,
            "of one dtype.*qkv of layer 0 is torch.int8, output of layer 1 torch.float8_e4m3fn",
        ),
        (lambda: _with("int8", **_layer_of("as x")), ValueError, "qkv of layer 1 torch.float32"),
        (lambda: _with("as x", **_layer_of("fp8")), ValueError, "qkv of layer 1 torch.float8_e4m3fn"),
        (lambda: _of_dtype(torch.uint8), TypeError, "int8 or float8_e4m3fn.*qkv of layer 0 is torch.uint8"),
        (lambda: _of_dtype(torch.float16), TypeError, "qkv of layer 0 is torch.float16"),
        (lambda: _given(k_caches=[torch.zeros(3, 2, 8, 32)] * 3), ValueError, "2 layers, 3 and 2 caches"),
        (lambda: _given(k_caches=[torch.zeros(3, 2, 8, 32)] * 2), ValueError, r"one shape.*v_caches\[0\]"),
        (
            lambda: _given(v_caches=[torch.zeros(3, 4, 128, 32)] * 2),
            ValueError,
            r"H_kv = 2.*v_caches\[0\] has",
        ),
        (lambda: _given(v_caches=[torch.zeros(3, 2, 32, 128).mT] * 2), ValueError, "do not lie side by side"),
        (lambda: _given(cos_sin=torch.zeros(3, 34)), ValueError, r"at most D = 32; not \(3, 34\)"),
        (lambda: _given(cos_sin=torch.zeros(3, 32).half()), TypeError, "cos_sin is a dense float32 tensor"),
        (
            lambda: _given(places=torch.zeros(3, dtype=torch.int32)),
            TypeError,
            "places is an int64 tensor, not torch.int32",
        ),
        (lambda: _given(places=torch.zeros(2, dtype=torch.int64)), ValueError, r"places is \(B,\) = \(3,\)"),
        (lambda: _given(x=torch.zeros(3, 72, requires_grad=True)), Unsupported, "forward only"),
        (lambda: _given(impl="v99_nothing"), Unsupported, "v99_nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_does_not_fit_is_refused(given, error, says):
    with pytest.raises(error, match=says):
        decoder_layers(**given())


def test_the_operator_itself_checks_what_it_is_given():
    """It is called without the function where a graph was compiled."""
    kernels.load("cpu", (NAME,))
    good = _given()
    none = torch.empty(0)
    weights = [none if t is None else t for layer in good["layers"] for t in layer]
    rest = good["cos_sin"], good["places"], 4, 2, "swiglu", 1e-5, "cpu"
    caches = list(good["k_caches"]), list(good["v_caches"])
    operator = torch.ops.fusescope.decoder_layers.default
    operator(good["x"], weights, *caches, *rest)
    for given, says in (
        ((good["x"], weights[:-1], *caches, *rest), "18 weights and scales and two caches"),
        ((good["x"].t(), weights, *caches, *rest), "contiguous"),
        ((good["x"], [weights[0][1:], *weights[1:]], *caches, *rest), "norm1 of a layer is a vector of 72"),
        (
            (good["x"], weights, *caches, None, good["places"].int(), *rest[2:]),
            "places is a contiguous int64",
        ),
        ((good["x"], weights, *caches, *rest[:4], "relu", *rest[5:]), "activation is gelu"),
        ((good["x"], weights, caches[0], caches[1][:1], *rest), "two caches"),
    ):
        with pytest.raises(RuntimeError, match=says):
            operator(*given)


def test_the_operator_itself_checks_scales_and_formats():
    fields = DecoderLayer._fields
    good, none = _given(weight="fp8"), torch.empty(0)
    rest = list(good["k_caches"]), list(good["v_caches"]), good["cos_sin"], good["places"]
    rest += 4, 2, "swiglu", 1e-5, "cpu"
    weights, plain = (
        [none if t is None else t for one in _given(weight=kind)["layers"] for t in one]
        for kind in ("fp8", "as x")
    )
    operator = torch.ops.fusescope.decoder_layers.default
    operator(good["x"], weights, *rest)
    ones, second = torch.ones(72), weights[fields.index("second")]
    for number in range(len(good["layers"])):
        for given, place, wrong, says in (
            (weights, "first_scales", none, "first_scales of a layer is a vector of 272"),
            (weights, "second_scales", ones[:1], "second_scales of a layer is a vector of 72"),
            (weights, "second_scales", ones.half(), "of float32"),
            (weights, "second_scales", torch.ones(144)[::2], "contiguous"),
            (weights, "second", second.float().to(torch.int8), "all matrices of all layers"),
            (weights, "second", second.float(), "all matrices of all layers"),
            (plain, "second_scales", ones, "second_scales of a layer is for matrices of int8"),
        ):
            given = list(given)
            given[number * len(fields) + fields.index(place)] = wrong
            with pytest.raises(RuntimeError, match=says):
                operator(good["x"], given, *rest)


def test_a_layer_is_given_by_names_or_as_a_tuple():
    first, *_ = decoder_layers(**_given())
    named = _given(layers=[layer._asdict() for layer in _given()["layers"]])
    assert torch.equal(decoder_layers(**named)[0], first)
    assert DecoderLayer._fields[:3] == ("norm1", "norm1_bias", "qkv")
    strided = _given()
    strided["x"] = strided["x"].t().contiguous().t()
    assert torch.equal(decoder_layers(**strided)[0], first)
    three = _given()
    three["x"] = three["x"][:, None]
    assert torch.equal(decoder_layers(**three)[0], first[:, None])


@pytest.mark.slow
def test_torch_takes_the_operator(device):
    kernels.load(device, (NAME,))
    module = ops.load(NAME)
    values = module.validate(SMALL | TAKEN | {"layer": "llama"})
    inputs = module.inputs(values, "float32" if device == "cpu" else "float16", device, seed=2)
    (x, layers, k, v, *rest), how = module.arguments(inputs)
    weights = [x.new_empty(0) if t is None else t for layer in layers for t in layer]
    caches = ([t.clone() for t in side] for side in (k, v))
    given = x, weights, *caches, *rest, how["heads"], how["kv_heads"], "swiglu", 1e-5, impl_of(device)
    torch.library.opcheck(torch.ops.fusescope.decoder_layers.default, given)


@pytest.mark.slow
def test_the_function_compiles_without_a_graph_break():
    one, other = _given(), _given()
    right, *_ = decoder_layers(**one)

    def step(x):
        return decoder_layers(**(other | {"x": x}))[0] * 2

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(other["x"]), right * 2)
    assert all(torch.equal(a, b) for a, b in zip(one["k_caches"], other["k_caches"]))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_of_a_step_moves_on_with_its_places(kind):
    """A captured step is replayed for the next token: places are read on the device."""
    module = ops.load(NAME)
    values = module.validate(SMALL | {"layer": kind, "width": 256, "ffn": 512, "head_dim": 64})
    inputs = module.inputs(values, "float16", "cuda", seed=4)
    other = inputs | {name: inputs[name].clone() for name in (*module.WRITES, "places")}
    impl = impl_of("cuda")
    module.call(other, impl)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found, *_ = module.call(other, impl)
    for step in range(3):
        for one in (inputs, other):
            one["places"].fill_(values["cached"] - 2 + step)
        right, *_ = module.call(inputs, impl)
        graph.replay()
        assert torch.equal(found, right)
    # by now both have written the place at which the step was captured
    assert torch.equal(other["k_caches"], inputs["k_caches"])
    assert torch.equal(other["v_caches"], inputs["v_caches"])
