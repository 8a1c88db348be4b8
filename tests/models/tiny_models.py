"""Tiny cases of every model, and the folder of a checkpoint, shared by the tests of models."""

from __future__ import annotations

import json
from functools import lru_cache

from fusescope import models

SIZES = {"layers": 2, "heads": 2, "head_dim": 32, "batch": 2}
QUICK = {"cache": "warm", "budget_s": 0.2, "min_s": 0.01, "min_samples": 5}
ONE_OF_A_FAMILY = (
    "bert-base",
    "vit-base",
    "whisper-small-encoder",
    "gpt2",
    "llama-small",
    "mistral-7b",
    "qwen2.5-7b",
    "qwen3-0.6b",
    "t5-small",
)


def case(name: str, **more) -> dict:
    """A complete tiny case: width 64, two layers, two sequences of 17 tokens (a ViT's 4 x 4 patches and class
    token)."""
    return models.validate(name, SIZES | {"seq": 17} | more)


@lru_cache(maxsize=12)
def built(name: str, dtype: str = "float32"):
    """The tiny model, shared by tests that leave its weights alone: they do not depend on masks, lengths and
    phases."""
    from fusescope.models.run import build

    return build.build(name, case(name), dtype)


def cases(name: str) -> list[dict]:
    """What a family can be asked: masks, lengths, phases."""
    if hasattr(models.family(name), "INPUT"):
        asked = [{}]
    elif models.kind(name) == "encoder":
        window = "sliding_window:left=3,right=3"
        asked = [
            {},
            {"mask": window},
            {"lengths": "9+17"},
            {"lengths": "9+17", "mask": window},
            {"lengths": "5+12", "mask": "causal"},
        ]
    elif models.kind(name) == "decoder":
        asked = [
            {"phase": "prefill"},
            {"phase": "prefill", "lengths": "9+17"},
            {"phase": "prefill", "mask": "strided:window=4,stride=4"},
            {"phase": "decode"},
            {"phase": "decode", "lengths": "9+17"},
        ]
    else:
        asked = [{}, {"lengths": "9+17"}]
    return [case(name, **a) for a in asked]


def save(
    folder, name: str = "bert-base", prefix: str = "", rename=lambda n: n, change=lambda state: None, **config
):
    """A checkpoint of the tiny model as Hugging Face writes one; returns the model that was saved."""
    import torch
    from safetensors.torch import save_file

    from fusescope.models.run import build

    model = build.build(name, case(name), "float32", seed=7)
    settings = model.module.config.to_dict() | config
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings, default=str))
    state = {prefix + rename(n): p.detach().clone() for n, p in model.module.named_parameters()}
    change(state)
    save_file({n: t.contiguous() for n, t in state.items()}, str(folder / "model.safetensors"))
    assert all(isinstance(t, torch.Tensor) for t in state.values())
    return model
