"""All layers of a decoder in one call: against Hugging Face's and our layers, what is written and what is
not, and exact errors."""

import pytest
import torch

from fusescope import kernels, ops
from fusescope.core.errors import Unsupported
from fusescope.measure.checking.check import Case
from fusescope.models.run.decoder.layers import Layers
from fusescope.ops.attention import attention_decode_step
from fusescope.ops.layer.decoder_layers import DecoderLayer, decoder_layers
from tests.models.tiny_models import built
from tests.ops import decoder_layers_tools as tools

NAME = "decoder_layers"
SMALL = dict(batch=3, layers=2, width=72, heads=4, kv_heads=2, head_dim=32, ffn=136, cached=70)
TAKEN = dict(width=96, ffn=160, head_dim=64)  # by kernels for 16 bits too
DTYPES = ops.load(NAME).DTYPES
KINDS = ("gpt2", "llama", "qwen3")


def impl_of(device):
    return kernels.choose(NAME, device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_implementation_is_right(kind, dtype):
    module = ops.load(NAME)
    case = Case(module, module.validate(SMALL | {"layer": kind}), dtype, "cpu", seed=1)
    for impl in ("cpu", "eager", "operators"):
        assert case.verify(ops.make(NAME, impl, case.inputs)).reason is None, impl


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_outside_is_nan_and_nothing_else_is_written(kind, dtype, device):
    if device == "cuda" and dtype == "float32":
        pytest.skip("all layers in one launch are float16 and bfloat16")
    given = {"layer": kind, "batch": 8, "cached": 37} | (TAKEN if device == "cuda" else {})
    for contiguous in (True, False) if device == "cpu" else (True,):
        found = tools.what_is_wrong(impl_of(device), SMALL | given, dtype, device, 5, contiguous)
        assert found is None


@pytest.mark.parametrize(("kind", "twist"), list(zip((*KINDS, "qwen3"), tools.TWISTS)))
def test_what_no_kind_of_layer_has(kind, twist, device):
    values = SMALL | TAKEN | {"layer": kind}
    dtype = "float32" if device == "cpu" else "float16"
    assert tools.what_is_wrong(impl_of(device), values, dtype, device, 6, twist=twist) is None


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


def _given(kind="qwen3", **more):
    """Good arguments by name."""
    module = ops.load(NAME)
    inputs = module.inputs(module.validate(SMALL | {"layer": kind}), "float32", "cpu", seed=2)
    given, how = module.arguments(inputs)
    names = ("x", "layers", "k_caches", "v_caches", "cos_sin", "places")
    return dict(zip(names, given)) | how | more


def _with(**weights):
    given = _given()
    given["layers"][1] = given["layers"][1]._replace(**weights)
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
