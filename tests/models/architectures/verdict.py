"""Whether a class of transformers with attn_implementation="fusescope" equals itself with "eager"."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import torch

from fusescope.core.errors import Unsupported
from fusescope.models import register_attention
from tests.models.architectures import tiny

MOST_PARAMETERS = 40_000_000
TOLERANCE = 1e-4  # of the largest value, in float32
WRONG = ("different", "unused")


@dataclass(frozen=True)
class Verdict:
    """state: "equal", "refused" (at load), "refused in forward", "unused" (equal, but our attention was not
    called), "different", "not built" or "not run" (by eager either); why: in words."""

    state: str
    why: str = ""


def of(name: str) -> Verdict:
    import transformers

    calls = register_attention()
    cls = getattr(transformers, name)
    try:
        with torch.device("meta"):
            size = sum(p.numel() for p in _built(cls, "eager").parameters())
        if size > MOST_PARAMETERS:
            return _refusal(cls) or Verdict("not built", f"{size} parameters")
        eager = _built(cls, "eager")
    except Exception as error:
        return _refusal(cls) or Verdict("not built", _line(error))
    if refused := _refusal(cls, tiny.config(cls.config_class)):
        return refused
    ours = _built(cls, "fusescope")
    _fill(eager)
    ours.load_state_dict(eager.state_dict())
    errors = []
    for given in _inputs(eager):
        before = calls.count
        try:
            expected = _outputs(eager, given)
        except Exception as error:
            errors.append(_line(error))
            continue
        assert calls.count == before, "eager is eager"
        if not all(bool(t.isfinite().all()) for t in expected) or not expected:
            errors.append("eager gives NaN or Inf" if expected else "no floating-point output")
            continue
        try:
            got = _outputs(ours, given)
        except Unsupported as error:
            return Verdict("refused in forward", _line(error))
        worst = max(_worst(expected, got, given), _after_cache(eager, ours, given))
        if not worst < TOLERANCE:
            again = _outputs(eager, given)
            if _worst(expected, again, given) > 0:
                return Verdict("not run", "random in eval mode")
            return Verdict("different", f"{worst:.2g} of the largest value, {calls.count - before} calls")
        return Verdict("equal" if calls.count > before else "unused", f"{calls.count - before} calls")
    return Verdict(
        "not run", " | ".join(dict.fromkeys(errors)) or "no batch of these tests suits its forward"
    )


def _built(cls, attention: str):
    """With a configuration of its own: setting the attention of a model changes its configuration."""
    return cls._from_config(tiny.config(cls.config_class), attn_implementation=attention).eval()


def _refusal(cls, config=None) -> Verdict | None:
    try:
        with torch.device("meta"):
            cls._from_config(config or cls.config_class(), attn_implementation="fusescope")
    except Unsupported as error:
        return Verdict("refused", _line(error))
    except Exception as error:
        if config is not None:
            return Verdict("different", _line(error))
    return None


def _fill(model) -> None:
    """Weights with which attention matters: scores of order 1."""
    with torch.no_grad():
        for module in model.modules():
            for p in module.parameters(recurse=False):
                if p.dim() > 1 and p.numel() and p.is_floating_point():
                    fan_in = 1 if isinstance(module, torch.nn.Embedding) else p[0].numel()
                    p.normal_(0, fan_in**-0.5)


def _inputs(model):
    """Batches to try, until one suits the model."""
    names = inspect.signature(model.forward).parameters
    g = torch.Generator().manual_seed(1)
    tokens = tiny.TOKENS
    ids = torch.randint(3, 97, (2, tokens), generator=g)
    there = torch.ones(2, tokens, dtype=torch.long)
    kind = tiny.classes()[type(model).__name__][0]
    there[0, slice(0, 4) if kind == "causal" else slice(9, tokens)] = 0
    padded = {"attention_mask": there} if "attention_mask" in names else {}
    decoder = {"decoder_input_ids": ids[:, :7]} if "decoder_input_ids" in names else {}
    size, channels = _of(model.config, "image_size") or 32, _of(model.config, "num_channels") or 3
    frames = _of(model.config, "num_frames") or 4
    size = size if isinstance(size, (tuple, list)) else (size, size)
    pixels = {"pixel_values": torch.randn(2, channels, *size, generator=g)}
    if "input_ids" in names:
        yield {"input_ids": ids} | padded | decoder
        if "pixel_values" in names:
            yield {"input_ids": ids} | padded | decoder | pixels
    if "pixel_values" in names:
        yield pixels
        yield pixels | decoder
        yield {"pixel_values": torch.randn(2, frames, channels, *size, generator=g)}
    if "grid_thw" in names:
        elements = (_of(model.config, "in_channels") or channels) * _of(model.config, "patch_size") ** 2
        patches = torch.randn(32, elements * (_of(model.config, "temporal_patch_size") or 1), generator=g)
        yield {next(iter(names)): patches, "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]])}
    if "input_features" in names:
        bins = _of(model.config, "num_mel_bins") or _of(model.config, "feature_size")
        bins = _of(model.config, "feature_projection_input_dim") or bins or 80
        for shape in ((2, bins, 32), (2, 32, bins)):
            yield {"input_features": torch.randn(shape, generator=g)} | decoder
    if "input_values" in names:
        yield {"input_values": torch.randn(2, 4000, generator=g)} | decoder
        yield {"input_values": torch.randn(2, 1, 4000, generator=g)} | decoder


def _of(config, name: str):
    for part in (config, *(getattr(config, sub) for sub in config.sub_configs)):
        if part is not None and getattr(part, name, None):
            return getattr(part, name)
    return None


def _outputs(model, given) -> list:
    torch.manual_seed(2)
    with torch.no_grad():
        found = model(**given)
    values = found.values() if hasattr(found, "values") else found
    return [t for t in values if isinstance(t, torch.Tensor) and t.is_floating_point()]


def _distance(a, b, given) -> float:
    if a.shape != b.shape:
        return float("inf")
    there = given.get("attention_mask")
    if there is not None and a.shape[:2] == there.shape:
        a, b = a[there.bool()], b[there.bool()]
    return float((a - b).abs().max() / a.abs().max().clamp(min=1))


def _after_cache(eager, ours, given) -> float:
    """The same of one more token over a cache; 0 where eager has none."""
    if "input_ids" not in given or "attention_mask" not in given or "decoder_input_ids" in given:
        return 0.0
    first = {name: t[:, :-1] if name in ("input_ids", "attention_mask") else t for name, t in given.items()}
    second = {"input_ids": given["input_ids"][:, -1:], "attention_mask": given["attention_mask"]}
    found = []
    for model in (eager, ours):
        try:
            with torch.no_grad():
                cache = model(**first, use_cache=True).past_key_values
                found.append(_outputs(model, second | {"past_key_values": cache, "use_cache": True})[:1])
        except Exception:
            if model is eager:
                return 0.0
            raise
    return _worst(*found, {}) if found[0] else 0.0


def _worst(expected, got, given) -> float:
    """NaN where any is."""
    return float(torch.tensor([_distance(a, b, given) for a, b in zip(expected, got)]).max())


def _line(error) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
