"""Which attention ran, and the time of each part of a model: by its modules or the order of its kernels."""

import re

import pytest

from fusescope import models
from fusescope.core.errors import Unsupported
from fusescope.core.paths import ROOT
from fusescope.core.sources import source_closure
from fusescope.models.inspect import backends, parts, parts_order
from fusescope.models.run import build, modes
from tests.models.tiny_models import ONE_OF_A_FAMILY, built, case

pytestmark = pytest.mark.usefixtures("cpu_kernels")


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


@pytest.mark.slow
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
