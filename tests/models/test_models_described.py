"""What is known of models without torch: names, cases, anatomy, cost, ways."""

import operator
import subprocess
import sys

import pytest

from fusescope import masks, models
from fusescope.core.paths import ROOT
from fusescope.models.describe import catalog, settings
from tests.models.tiny_models import ONE_OF_A_FAMILY, case

F13 = {
    "": 109_482_240,
    "/embeddings": 23_837_184,
    "/encoder": 85_054_464,
    "/encoder/layer 0": 7_087_872,
    "/encoder/layer 11/attention": 2_363_904,
    "/encoder/layer 0/intermediate": 2_362_368,
    "/encoder/layer 0/output": 2_361_600,
}


@pytest.mark.slow
def test_describing_needs_neither_torch_nor_transformers():
    code = (
        "import sys\nfrom fusescope import models\n"
        "for n in models.names():\n"
        "    c = models.validate(n, {}); models.anatomy(n); models.cost(n, c, 'float16'); models.modes(n, "
        "'cuda:0'); models.title(n)\n"
        "print(sorted(m for m in ('torch', 'transformers', 'pandas') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_published_counts():
    counts = {n.name.removeprefix("bert-base"): n.count for n in models.anatomy("bert-base")}
    assert {k: counts[k] for k in F13} == F13


@pytest.mark.parametrize(
    "name, count",
    [
        ("bert-large", 335_141_888),
        ("vit-large", 304_351_232),
        ("whisper-small-encoder", 88_154_112),
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("llama2-7b", 6_738_415_616),
        ("llama3.1-8b", 8_030_261_248),
        ("mistral-7b", 7_248_023_552),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-8b", 8_190_735_360),
    ],
)
def test_the_sizes_that_people_decide_on(name, count):
    assert models.total(name) == count


def test_anatomy_is_a_tree_whose_parts_add_up():
    nodes = models.anatomy("t5-small")
    seen = set()
    for node in nodes:
        assert node.parent == "" or node.parent in seen
        seen.add(node.name)
        parts = [n.count for n in nodes if n.parent == node.name]
        assert (node.kind == "weights") == (not parts)
        assert not parts or sum(parts) == node.count


@pytest.mark.parametrize("name", models.names())
def test_every_weight_of_the_table_is_one_of_hugging_face(name):
    import torch
    import transformers

    from fusescope.models.describe import tree

    asked = {"layers": 3} if name != "bert-base" else {}
    config = models.config(name, asked)
    table, keywords = models.family(name).SETTINGS, settings.keywords(models.family(name), config)
    with torch.device("meta"):
        built = operator.attrgetter(table.module)(transformers)(
            getattr(transformers, table.config)(**keywords)
        )
    theirs = {n: tuple(p.shape) for n, p in built.named_parameters()}
    ours = {
        w.theirs.replace("{i}", str(i)): w.dims(config) for w, i in tree.rows(models.family(name), config)
    }
    assert ours == theirs
    assert models.anatomy(name, asked)[0].count == sum(p.numel() for p in built.parameters())


@pytest.mark.parametrize(
    "name, asked, says",
    [
        ("bert-base", {"heads": 7}, "heads divides the width 768"),
        ("bert-base", {"heads": 1000}, "heads must be an integer from 1 to 256, not 1000"),
        ("bert-base", {"head_dim": 100}, "head_dim divides the width 768"),
        ("bert-base", {"heads": 64}, "head_dim is a multiple of 8, not 12"),
        ("bert-base", {"batch": 2, "lengths": "5+200"}, "a length must be an integer from 1 to 128, not 200"),
        ("bert-base", {"batch": 3, "lengths": "5+20"}, "lengths give 2 sequences, batch is 3"),
        ("bert-base", {"lengths": "long"}, "lengths must be fixed, uniform"),
        ("bert-base", {"lengths": "uniform:mean=3"}, "lengths uniform takes low, seed, not mean"),
        ("bert-base", {"mask": "holes"}, "unknown mask"),
        ("bert-base", {"mask": "random:density=0.01,seed=3"}, "without any to attend to"),
        ("bert-base", {"colour": 1}, "bert-base takes batch, seq"),
        ("bert-base", {"batch": 2, "mask": "padding:lengths=3+4", "lengths": "5+6"}, "differs per sequence"),
        ("vit-base", {"seq": 200}, "a square of patches and the class token, such as 197, not 200"),
        ("gpt2", {"mask": "full"}, "a mask that keeps later tokens, such as full"),
        ("gpt2", {"mask": "longformer"}, "a mask that keeps later tokens"),
        ("gpt2", {"phase": "decode", "mask": "strided"}, "a decoded token of gpt2 sees the whole cache"),
        ("gpt2", {"phase": "both"}, "phase must be prefill, decode or generate, not 'both'"),
        ("t5-small", {"mask": "causal"}, "brings its own masks"),
        ("bert-huge", {}, "config.json or its folder; did you mean bert-large"),
    ],
)
def test_what_does_not_fit_is_one_sentence(name, asked, says):
    with pytest.raises(ValueError) as refused:
        models.validate(name, asked)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_sizes_of_a_case():
    whole = models.validate("bert-base", {"heads": 16, "head_dim": 64, "layers": 3, "seq": 2048})
    config = models.config("bert-base", whole)
    assert (config.hidden, config.ffn, config.layers, config.positions) == (1024, 4096, 3, 2048)
    assert models.validate("bert-base", {"heads": 8})["head_dim"] == 96
    assert models.validate("bert-base", {"head_dim": 32})["heads"] == 24
    assert models.validate("bert-base", models.validate("bert-base", {"heads": 8})) == models.validate(
        "bert-base", {"heads": 8}
    )
    assert models.validate("vit-base", {})["seq"] == 197
    assert models.config("llama-small", {"heads": 6, "head_dim": 64}).kv_heads == 2


def test_llama3_8b_has_the_published_number_of_parameters():
    assert models.total("llama3-8b") == 8_030_261_248


def test_uniform_lengths_have_the_mean_they_claim():
    found = models.validate("bert-base", {"batch": 16, "seq": 512, "lengths": "uniform"})
    counts = models.lengths(found)
    assert max(counts) == 512 and abs(sum(counts) / 16 - 0.6 * 512) < 1 and counts != sorted(counts)
    assert (
        models.lengths(
            models.validate("bert-base", {"batch": 16, "seq": 512, "lengths": "uniform:seed=0,low=0.2"})
        )
        == counts
    )
    assert models.validate("bert-base", {"batch": 2, "lengths": [3, 4]})["lengths"] == "3+4"


def test_cost_counts_the_tokens_and_pairs_that_are_there():
    full = models.cost("bert-base", models.validate("bert-base", {"batch": 16, "seq": 512}), "float16")
    gemms = 2 * 16 * 512 * 12 * (4 * 768**2 + 2 * 768 * 3072)
    pairs = 16 * 512 * 512 * 12 * 12 * (4 * 64 + 5)
    parts = full.notes["effective"]
    assert (
        parts["qkv"] + parts["output"] + parts["ffn"] == gemms + 6 * 16 * 512 * 12 * 3072
        and parts["attention"] == pairs
    )
    assert set(parts) == set(models.PARTS)
    padded = models.validate(
        "bert-base", {"batch": 2, "seq": 64, "lengths": "16+64", "mask": "sliding_window:left=4,right=4"}
    )
    cost = models.cost("bert-base", padded, "float16")
    live = sum(min(q + 4, n - 1) - max(q - 4, 0) + 1 for n in (16, 64) for q in range(n))
    assert cost.notes["effective"]["attention"] == live * 12 * 12 * (4 * 64 + 5)
    assert cost.flop_effective < cost.flop_executed and cost.notes["valid_tokens"] == 80
    uneven = models.cost("llama-small", case("llama-small", phase="decode", lengths="9+17"), "float16")
    assert (
        uneven.notes["effective"]["attention"] == (10 + 18) * 2 * 2 * (4 * 32 + 5)
        and uneven.notes["valid_tokens"] == 2
    )
    assert uneven.notes["executed"]["attention"] == 2 * 18 * 2 * 2 * (4 * 32 + 5)
    decode = models.cost("gpt2", case("gpt2", phase="decode"), "float32")
    assert decode.notes["effective"]["head"] == 2 * 2 * 64 * 50257 and decode.notes["valid_tokens"] == 2


@pytest.mark.parametrize("mask", ["sliding_window", "strided:window=9,stride=7", "random", "bigbird:block=8"])
def test_shorter_sequences_see_a_corner_of_the_mask(mask):
    padded = {"batch": 3, "seq": 100, "lengths": "7+64+93", "mask": mask}
    cost = models.cost("bert-base", models.validate("bert-base", padded), "float16")
    dense = masks.parse(mask).dense(100)
    live = sum(int(dense[:n, :n].sum()) for n in (7, 64, 93))
    assert cost.notes["effective"]["attention"] == live * 12 * 12 * (4 * 64 + 5)


def test_ways_say_why_not():
    ways = {w.name: w for w in models.modes("gpt2", "cpu")}
    assert (
        ways["eager"].reason is None
        and "cuda" in ways["sdpa-graph"].reason
        and ways["fused"].reason is None
        and "our decoder" in ways["fused"].idea
    )
    assert "not those of t5-small" in models.mode("t5-small", "fused").reason
    assert models.mode("bert-base", "fused", "cuda:0").reason is None
    with pytest.raises(ValueError, match="has no execution mode 'magic'"):
        models.mode("bert-base", "magic")


def test_operators_of_models_have_names():
    assert models.named(models.op("bert-base")) == "bert-base"
    for wrong in ("bert-base", "model:bert"):
        with pytest.raises(ValueError):
            models.named(wrong)
    assert {catalog.family(n).__name__ for n in ONE_OF_A_FAMILY} == {
        catalog.family(n).__name__ for n in models.names()
    }
