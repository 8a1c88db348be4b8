"""Mistral 7B v0.3: Llama's layers in other sizes, without the sliding window of its first version (Jiang et
al. 2023, arXiv 2310.06825; config.json of mistralai/Mistral-7B-v0.3). A checkpoint with a window is measured
on cases that lie within it, where it hides nothing."""

from __future__ import annotations

from dataclasses import replace

from fusescope.core.schema import Parameter
from fusescope.models.describe.family import Config
from fusescope.models.families import llama
from fusescope.models.families.llama import (  # noqa: F401 (the tables of a family)
    IGNORED,
    KIND,
    MASK,
    MODULES,
    PARALLEL,
    PHASES,
    PREFIXES,
    STRUCTURE,
    WEIGHTS,
)

NAMES = {
    "mistral-7b": Config(
        "mistral-7b",
        4096,
        32,
        32,
        128,
        14336,
        vocab=32768,
        kv_heads=8,
        positions=32768,
        eps=1e-5,
        activation="silu",
        tied=False,
        more={"rope_theta": 1000000.0},
    )
}
TITLE = {"mistral-7b": "Mistral 7B"}
SETTINGS = replace(
    llama.SETTINGS,
    title="Mistral",
    model_type="mistral",
    config="MistralConfig",
    module="MistralForCausalLM",
    fixed={},
)
_WINDOW = Parameter("sliding_window of config.json", "int", low=1)


def further(config):
    return llama.further(config) | {"sliding_window": None}


def more(data):
    window = data.get("sliding_window", 4096)  # what transformers takes where it is left out
    if window is None:
        return llama.more(data)
    _WINDOW.check(window)
    return llama.more(data) | {"window": window}
