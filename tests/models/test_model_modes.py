"""Every way that the CPU has, on every family: right within the tolerance of a comparison, and the attention
that ran."""

import re

import pytest

from fusescope import models
from fusescope.core.errors import Unsupported
from fusescope.core.paths import ROOT
from fusescope.core.sources import source_closure
from fusescope.models import register
from fusescope.models.describe import modes as listing
from fusescope.models.inspect import backends, parts, parts_order
from fusescope.models.run import build, modes, tolerance
from tests.models.tiny_models import ONE_OF_A_FAMILY, built, case, cases

_references: dict = {}  # the last one
QUICK = ("eager", "sdpa", "fusescope", "fused")


@pytest.fixture(scope="module", autouse=True)
def _kernels():
    from fusescope import kernels

    kernels.load("cpu")


def _worst(name, asked, way, dtype="float32"):
    """(largest error in units of what is allowed, error as a whole in such units)."""
    model = built(name, dtype) if asked["layers"] == 2 else build.build(name, asked, dtype)
    inputs = build.inputs(model, asked)
    key = (name, dtype, *asked.items())
    if key not in _references:
        _references.clear()
        _references[key] = tolerance.reference(model, inputs)
    ref = _references[key]
    out = modes.make(way, model, inputs)()
    assert out.shape == ref.shape and str(out.dtype) == f"torch.{dtype}"
    if (there := tolerance.valid(inputs, out)) is not None:
        out, ref = out[there], ref[there]
    allowed = tolerance.tolerance(asked["layers"], dtype)
    error = (out.double() - ref).abs()
    norm = float((out.double() - ref).norm() / ref.norm())
    return float(
        (error / (allowed.absolute + allowed.relative * ref.abs())).max()
    ), norm / tolerance.allowed_norm(asked["layers"], dtype)


@pytest.mark.parametrize("name", ONE_OF_A_FAMILY)
def test_every_mode_is_correct(name):
    for asked in cases(name):
        for way in QUICK:
            if models.mode(name, way).reason is None:
                worst, norm = _worst(name, asked, way)
                assert worst < 1 and norm < 1, (way, asked, worst, norm)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_too(dtype):
    for name, asked in (
        ("bert-base", {"lengths": "9+17"}),
        ("vit-base", {}),
        ("llama-small", {"phase": "decode"}),
    ):
        for way in QUICK:
            if models.mode(name, way).reason is None:
                assert max(_worst(name, case(name, **asked), way, dtype)) < 1, (name, way)


@pytest.mark.parametrize("spoil", ["mask", "length", "bias"])
def test_a_wrong_model_is_beyond_the_tolerance(spoil, monkeypatch):
    """The judge itself: a window off by one, a padded key seen, a bias forgotten must all show, in half
    precision too."""
    asked = case("bert-base", mask="sliding_window:left=3,right=3", lengths="9+17")
    model = build.build("bert-base", asked, "float16")
    inputs, ref = build.inputs(model, asked), None
    ref = tolerance.reference(model, inputs)
    if spoil == "mask":
        inputs = build.inputs(model, case("bert-base", mask="sliding_window:left=3,right=2", lengths="9+17"))
    elif spoil == "length":
        inputs = build.inputs(model, case("bert-base", mask="sliding_window:left=3,right=3", lengths="10+17"))
        inputs["lengths_tensor"][0] = 9
    else:
        model.module.encoder.layer[1].output.dense.bias.zero_()
    out = modes.make("sdpa", model, inputs)()
    there = tolerance.valid(inputs | {"lengths": [9, 17]}, out)
    error = (out[there].double() - ref[there]).norm() / ref[there].norm()
    assert float(error) > tolerance.allowed_norm(2, "float16")


def test_padding_is_removed_and_put_back_as_zeros():
    from fusescope.models.run.fused_encoder import FusedEncoder

    asked = case("bert-base", lengths="9+17")
    model = built("bert-base")
    inputs = build.inputs(model, asked)
    seen = {}
    for total in (None, 28, 34):  # the sum itself, and buckets above it
        out = FusedEncoder(model, asked)(
            inputs, record=lambda n, t: seen.setdefault(n, []).append(t.shape), total=total
        )
        assert out.shape == (2, 17, 64) and bool((out[0, 9:] == 0).all()) and bool((out[0, :9] != 0).any())
    assert [s[0] for s in seen["encoder.layer.1.output"]] == [26, 28, 34]


def test_records_of_the_fused_encoder_have_hugging_face_names():
    import torch

    from fusescope.models.run.fused_encoder import FusedEncoder

    for name in ("bert-base", "vit-base"):
        asked = case(name)
        model = built(name)
        inputs, seen, theirs = build.inputs(model, asked), {}, {}
        FusedEncoder(model, asked)(inputs, record=seen.__setitem__)
        module = model.fresh("eager")
        for part, m in module.named_modules():
            m.register_forward_hook(
                lambda _m, _i, o, part=part, at=theirs: at.__setitem__(
                    part, o[0] if isinstance(o, tuple) else o
                )
            )
        with torch.no_grad():
            build.call(module, inputs)
        assert len(seen) >= 9
        for part, out in seen.items():
            assert (out - theirs[part]).abs().max() < 1e-4, part


_DISTILBERT = """
from fusescope.models.describe.family import Config, Weight, dense, norm
from fusescope.models.describe.settings import Settings

KIND, PHASES, PREFIXES, IGNORED, STRUCTURE = "encoder", (), ("", "distilbert."), ("vocab_*",), "norm after"
NAMES = {"distilbert": Config("distilbert", 768, 6, 12, 64, 3072, vocab=30522, positions=512)}
TITLE = {"distilbert": "DistilBERT"}
SETTINGS = Settings(
    "DistilBERT", "distilbert", "DistilBertConfig", "DistilBertModel",
    {"hidden": "dim", "layers": "n_layers", "heads": "n_heads", "ffn": "hidden_dim", "vocab": "vocab_size",
     "positions": "max_position_embeddings", "activation": "activation"},
    {"activation": "gelu"},
)
MODULES = {"out": "transformer.layer.{i}"}
at, pos = "transformer.layer.{i}", "embeddings.position_embeddings"
WEIGHTS = (
    Weight("embeddings.word_embeddings.weight", ("vocab", "hidden"), "embeddings/word", "word"),
    Weight(f"{pos}.weight", ("positions", "hidden"), "embeddings/position", "position"),
    *norm("embeddings.LayerNorm", "embeddings/LayerNorm", "norm"),
    *dense(f"{at}.attention.q_lin", "inner", "hidden", "attention", "layers.{i}.qkv"),
    *dense(f"{at}.attention.k_lin", "inner", "hidden", "attention", "layers.{i}.qkv"),
    *dense(f"{at}.attention.v_lin", "inner", "hidden", "attention", "layers.{i}.qkv"),
    *dense(f"{at}.attention.out_lin", "hidden", "inner", "attention", "layers.{i}.output"),
    *norm(f"{at}.sa_layer_norm", "attention", "layers.{i}.norm1"),
    *dense(f"{at}.ffn.lin1", "ffn", "hidden", "ffn", "layers.{i}.ffn1"),
    *dense(f"{at}.ffn.lin2", "hidden", "ffn", "ffn", "layers.{i}.ffn2"),
    *norm(f"{at}.output_layer_norm", "ffn", "layers.{i}.norm2"),
)
"""


@pytest.fixture
def distilbert(tmp_path, monkeypatch):
    """A model that this project does not list, dropped in as one file of tables."""
    from fusescope.models import families
    from fusescope.models.describe import catalog

    (tmp_path / "distilbert.py").write_text(_DISTILBERT)
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    kept = (catalog._families, catalog.parameters)
    for function in kept:
        function.cache_clear()
    yield "distilbert"
    for function in kept:
        function.cache_clear()


def test_a_model_of_a_known_structure_is_one_table(distilbert, tmp_path):
    """It is built, run every way, counted, and loaded from a checkpoint."""
    from tests.models.tiny_models import save

    asked = case(distilbert, lengths="9+17")
    for way in QUICK:
        assert max(_worst(distilbert, asked, way)) < 1, way
    model = built(distilbert)
    assert models.names()[-1] == distilbert
    counted = models.anatomy(distilbert, asked)[0].count
    assert counted == sum(p.numel() for p in model.module.parameters())
    saved = save(tmp_path / "there", distilbert, "distilbert.")
    again = build.build(
        distilbert,
        models.validate(distilbert, {"seq": 17}, str(tmp_path / "there")),
        "float32",
        checkpoint=str(tmp_path / "there"),
    )
    assert all(
        (p == q).all() for p, q in zip(saved.module.parameters(), again.module.parameters(), strict=True)
    )


def test_buckets_are_few_and_hold_every_sum():
    from fusescope.models.run.fused_run import bucket

    for batch, seq in ((16, 512), (1, 128), (3, 77), (16, 2048)):
        found = {bucket(t, batch, seq) for t in range(1, batch * seq + 1)}
        assert len(found) <= 33 and max(found) == batch * seq
        assert all(bucket(t, batch, seq) >= t for t in (1, seq, batch * seq))


def test_which_attention_ran():
    asked = case("bert-base")
    model = built("bert-base")
    inputs = build.inputs(model, asked)
    ran = {
        w: backends.ran(modes.make(w, model, inputs), "cpu") for w in ("eager", "sdpa", "fusescope", "fused")
    }
    assert ran["eager"] == "matmul, softmax, matmul" and ran["sdpa"] == "flash_attention"
    assert ran["fusescope"].startswith("fusescope attention") and ran["fused"].startswith(
        "fusescope attention"
    )


@pytest.mark.parametrize(
    "kernels, operators, says",
    [
        ({"void pytorch_flash::flash_fwd_kernel<...>"}, {"aten::_softmax"}, "flash_attention"),
        ({"fmha_cutlassF_f16_aligned_64x64_rf_sm80(...)"}, set(), "efficient_attention"),
        ({"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob"}, set(), "cudnn_attention"),
        ({"triton_tem_fused_flex_attention_0"}, set(), "flex_attention"),
        ({"attention_hopper<1, 2>(...)", "ampere_gemm"}, set(), "fusescope attention_hopper"),
        ({"softmax_warp_forward", "gemm"}, {"aten::scaled_dot_product_attention"}, "math"),
        ({"cunn_SoftMaxForward", "gemm"}, {"aten::matmul"}, "matmul, softmax, matmul"),
        ({"gemm"}, set(), None),
    ],
)
def test_names_of_kernels_say_which(kernels, operators, says):
    assert backends.named(kernels, operators) == says


def test_every_attention_kernel_of_ours_is_known_by_name():
    files = [
        f
        for family in ("attention", "attention_varlen", "attention_decode")
        for f in (ROOT / "cuda" / family).glob("v*.cu")
    ]
    for file in files:
        text = "".join(part.read_text() for part in source_closure(file) if part.parent == file.parent)
        names = re.findall(
            r"__global__\s+void\s+(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?((?:attention|varlen|decode)_\w+)\(",
            text,
        )
        assert names and all(
            backends.named({f"void {name}<float>(...)"}, set()) == f"fusescope {name}" for name in names
        ), file.name


@pytest.mark.parametrize("name", ONE_OF_A_FAMILY)
def test_where_the_time_goes_has_every_part(name):
    asked = case(name, **({"phase": "decode"} if models.kind(name) == "decoder" else {}))
    model = built(name)
    inputs = build.inputs(model, asked)
    for way in ("eager", "fused"):
        if models.mode(name, way).reason is None:
            found = parts.measure(way, model, inputs, modes.make(way, model, inputs))
            assert tuple(found) == models.PARTS and abs(sum(p["share"] for p in found.values()) - 1) < 1e-6
            needed = set(models.PARTS) - {"head"} | ({"head"} if "phase" in asked else set())
            assert all(found[p]["ms"] > 0 for p in needed), (way, found)


def test_views_share_the_weights():
    model = built("bert-base")
    other = model.view("fusescope")
    assert {p.data_ptr() for p in other.parameters()} == {p.data_ptr() for p in model.module.parameters()}
    assert other is model.view("fusescope") and other is not model.fresh("fusescope")
    assert (
        model.module.config._attn_implementation == "eager"
        and other.config._attn_implementation == "fusescope"
    )


def test_same_seed_same_model_and_inputs():
    import torch

    asked = case("bert-base")
    a, b = (build.build("bert-base", asked, "float32", seed=3) for _ in range(2))
    assert all(torch.equal(p, q) for p, q in zip(a.module.parameters(), b.module.parameters()))
    assert torch.equal(build.inputs(a, asked, 5)["input_ids"], build.inputs(b, asked, 5)["input_ids"])
    assert not torch.equal(build.inputs(a, asked, 5)["input_ids"], build.inputs(a, asked, 6)["input_ids"])


def test_modes_that_are_not_there_are_refused():
    asked = case("gpt2")
    model = built("gpt2")
    inputs = build.inputs(model, asked)
    with pytest.raises(Unsupported, match="encoders like BERT or ViT; gpt2 is of the kind decoder"):
        modes.make("fused", model, inputs)
    with pytest.raises(Unsupported, match="sdpa-graph exists on cuda"):
        modes.make("sdpa-graph", model, inputs)
    with pytest.raises(ValueError, match="has no execution mode 'turbo'"):
        modes.make("turbo", model, inputs)


@pytest.mark.slow
def test_compiled_without_a_break_and_flex(monkeypatch):
    """One small model through the compiler: fullgraph, the masks prepared; its kernels are told apart by
    layer part."""
    asked = models.validate(
        "bert-base", {"layers": 1, "heads": 2, "head_dim": 32, "batch": 2, "seq": 17, "lengths": "9+17"}
    )
    made, make = {}, modes.make
    monkeypatch.setattr(modes, "make", lambda way, *given: made.setdefault(way, make(way, *given)))
    for way in ("compile-default", "flex"):
        worst, norm = _worst("bert-base", asked, way)
        assert worst < 1 and norm < 1, way
    found = parts_order.measure(made["compile-default"], "cpu", head=False)
    assert set(found) == set(models.PARTS) - {"head"} and all(ms > 0 for ms in found.values())


_LAYER = [("product", 3.0)] * 3 + [
    ("other", 0.5),
    ("attention", 2.0),
    ("other", 0.25),
    ("product", 1.0),
    ("rest", 0.125),
    ("other", 0.75),
    ("product", 4.0),
    ("other", 0.5),
    ("product", 4.0),
    ("other", 1.0),
]


@pytest.mark.parametrize("layers", [1, 3])
def test_parts_by_the_order_of_products_and_attentions(layers):
    found = parts_order.divide(
        [("other", 1.0), *_LAYER * layers, ("product", 5.0), ("other", 0.5)], head=True
    )
    assert found == {
        "embedding": 1.0,
        "qkv": 9.5 * layers,
        "attention": 2.25 * layers,
        "output": 1.125 * layers,
        "norm": 1.75 * layers,
        "ffn": 8.5 * layers,
        "head": 5.5,
    }


@pytest.mark.parametrize(
    "steps, says",
    [
        ([k for k in _LAYER * 2 if k[0] != "attention"], "no fused attention is seen"),
        (_LAYER * 2 + [("product", 1.0)], "the products around its attentions are"),
        (_LAYER + _LAYER[1:], "the products around its attentions are"),
    ],
)
def test_what_is_not_in_the_order_of_layers_has_no_parts(steps, says):
    with pytest.raises(Unsupported, match=says):
        parts_order.divide(steps, head=False)


def test_kernels_and_operators_are_steps():
    names = [
        "triton_red_fused_embedding_0",
        "nvjet_hsh_128x64",
        "splitKreduce_kernel<32>",
        "pytorch_flash::flash_fwd_kernel",
        "triton_tem_fused_addmm_7",
        "cutlass_80_tensorop_f16_s16816gemm",
        "fmha_cutlassF_f16",
        "triton_poi_fused_addmm_gelu_1",
        "sm90_xmma_fprop_implicit_gemm_f16",
    ]
    given = [(name, float(i), i + 0.5) for i, name in enumerate(names)]
    kinds = ["other", "product", "rest", "attention", "product", "product", "attention", "other", "other"]
    assert list(parts_order.kernels(given[::-1])) == [(kind, 0.5) for kind in kinds]
    inner = [
        (parts_order._CALL, 0.0, 10.0),
        ("aten::linear", 1.0, 3.0),
        ("aten::addmm", 1.5, 2.5),
        ("aten::gelu", 3.0, 4.0),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", 5.0, 9.0),
        ("aten::mm", 11.0, 12.0),
    ]
    assert list(parts_order.operators(inner)) == [
        ("other", 1.0),
        ("product", 2.0),
        ("other", 2.0),
        ("attention", 4.0),
        ("other", 1.0),
    ]


def test_peers_get_no_mask_where_there_is_nothing_to_mask(monkeypatch):
    """The trap: Hugging Face's own masks under capture. Ours are None, so SDPA keeps its fused backend."""
    import transformers.masking_utils as hf

    def full(**changes):
        given = dict(
            q_length=8,
            kv_length=8,
            mask_function=hf.bidirectional_mask_function,
            attention_mask=None,
            local_size=None,
            allow_is_bidirectional_skip=True,
            allow_is_causal_skip=False,
            batch_size=1,
        )
        return given | changes

    assert register._nothing(full())
    assert not register._nothing(full(attention_mask=object()))
    assert not register._nothing(full(allow_is_bidirectional_skip=False))
    causal = full(mask_function=hf.causal_mask_function, allow_is_causal_skip=True)
    assert register._nothing(causal) and register._nothing(causal | {"q_length": 1})
    assert not register._nothing(causal | {"q_length": 3}) and not register._nothing(
        causal | {"local_size": 4}
    )
    assert not register._nothing(
        causal | {"q_length": 1, "allow_is_causal_skip": False}
    )  # a static cache: slots that are empty


@pytest.mark.parametrize("padded", [False, True])
def test_the_mask_of_eager_is_hugging_faces(padded):
    import torch
    import transformers.masking_utils as hf

    there = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool) if padded else None
    common = dict(batch_size=2, q_length=4, kv_length=4, attention_mask=there, dtype=torch.float16)
    for function, skips in ((hf.causal_mask_function, False), (hf.bidirectional_mask_function, True)):
        given = common | {
            "mask_function": function,
            "allow_is_bidirectional_skip": skips,
            "allow_is_causal_skip": not skips,
        }
        theirs, ours = hf.eager_mask(**given), register._eager_mask(**given)
        assert (theirs is None and ours is None) or torch.equal(theirs, ours)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ONE_OF_A_FAMILY)
def test_every_way_of_the_gpu_is_right_and_follows_its_inputs(name):
    """Captured or not: new values in the same tensors give new results. (Compiled ways and more of
    FlexAttention take minutes.)"""
    seq = 65 if name == "vit-base" else 72
    asked_for = [
        models.validate(name, c | {"seq": seq, "lengths": c["lengths"].replace("17", str(seq))})
        for c in cases(name)
    ]
    model = build.build(name, asked_for[0], "float16", "cuda:0")
    for number, asked in enumerate(asked_for):
        fresh = build.inputs(model, asked, seed=1)
        for way in listing.MODES.values():
            later = way.attention == "flex_attention" and number > 0
            if models.mode(name, way.name, "cuda:0").reason is not None or way.compile or later:
                continue
            inputs = build.inputs(model, asked)
            try:
                run = modes.make(way.name, model, inputs)
            except Unsupported as error:
                assert way.name == "sdpa-graph-trap", (way, asked, error)
                continue
            for _ in range(2):
                out, ref = run().clone(), tolerance.reference(model, inputs)
                there = tolerance.valid(inputs, out)
                out, ref = (out, ref) if there is None else (out[there], ref[there])
                error = float((out.double() - ref).norm() / ref.norm())
                assert error < tolerance.allowed_norm(asked["layers"], "float16"), (way.name, asked, error)
                for key in ("input_ids", "pixel_values", "decoder_input_ids"):
                    if key in inputs:
                        inputs[key].copy_(fresh[key])
