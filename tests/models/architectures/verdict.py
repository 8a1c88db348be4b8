"""Whether a class of transformers with attn_implementation="fusescope" equals itself with "eager"."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fusescope.core.errors import Unsupported
from fusescope.models import register_attention
from tests.models.architectures import batches, tiny

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
    for given in batches.of(eager):
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
