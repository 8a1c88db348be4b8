"""Which model stands in for another, and in which sizes the two differ."""

import pytest

from fusescope import models


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("qwen3-8b", "llama3-8b"),
        ("bert-small", "bert-base"),
        ("vit-large", "vit-base"),
        ("gpt2-xl", "gpt2-large"),
        ("llama3.1-8b", "llama3-8b"),
    ],
)
def test_the_most_similar_model_comes_first(name, nearest):
    assert models.relatives(name)[0] == nearest


def test_only_models_with_the_same_layers_are_alike():
    assert set(models.relatives("gpt2")) == {"gpt2-medium", "gpt2-large", "gpt2-xl"}
    assert set(models.relatives("bert-base")) == {"bert-small", "bert-large"}
    assert models.relatives("t5-small") == models.relatives("whisper-small-encoder") == []


def test_sizes_that_differ_are_named():
    assert models.apart("qwen3-8b", "llama3-8b") == {
        "parameters": (8190735360, 8030261248),
        "layers": (36, 32),
        "ffn": (12288, 14336),
        "vocab": (151936, 128256),
    }
    assert "kv_heads" not in models.apart("bert-small", "bert-base")
    assert models.apart("llama2-7b", "llama3-8b")["kv_heads"] == (32, 8)
    assert models.apart("llama3.1-8b", "llama3-8b") == {}
