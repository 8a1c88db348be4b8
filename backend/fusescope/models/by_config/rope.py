"""Rotary positions as a config.json says them: the base of their frequencies and how these are scaled for
longer contexts (transformers' modeling_rope_utils). No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusescope.core.schema import Parameter

_NEEDED = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor",),
}
"""Kinds whose frequencies are the same at every length of a sequence, and what each of them has to say."""
_MORE = {
    "yarn": (
        *("original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
        *("mscale", "mscale_all_dim", "truncate"),
    )
}


def kind(data: Mapping[str, Any]) -> str:
    """default, linear, llama3, yarn, dynamic …"""
    said = _said(data)
    return str(said.get("rope_type", said.get("type", "default")))


def theta(data: Mapping[str, Any]) -> float:
    """The base of the frequencies."""
    return float(_said(data).get("rope_theta") or data.get("rope_theta") or 10000.0)


def more(data: Mapping[str, Any]) -> dict[str, Any]:
    """Config.more of a config.json: rope_theta, and where frequencies are scaled "rope", what
    ``further`` takes. ValueError for a kind that is not one of ours, what it lacks and what it does not
    have."""
    found, which = {"rope_theta": theta(data)}, kind(data)
    if which not in _NEEDED:
        raise ValueError(
            f"rotary positions of a checkpoint are of the kind {', '.join(_NEEDED)}, not {which!r}"
        )
    said = {
        key: value for key, value in _said(data).items() if key not in ("rope_type", "type", "rope_theta")
    }
    known = (*_NEEDED[which], *_MORE.get(which, ()))
    if missing := [key for key in _NEEDED[which] if said.get(key) is None]:
        raise ValueError(f"rotary positions of the kind {which} need {', '.join(missing)} in config.json")
    said = {key: value for key, value in said.items() if value is not None and which != "default"}
    for key, value in said.items():
        if key not in known:
            raise ValueError(f"rotary positions of the kind {which} have {', '.join(known)}, not {key}")
        if key == "truncate":
            Parameter("truncate of rope_parameters", "bool").check(value)
        else:
            Parameter(f"{key} of rope_parameters", "float", above=0).check(value)
    return found | ({"rope": {"rope_type": which, **said}} if which != "default" else {})


def further(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of Hugging Face's configuration for Config.more."""
    scaled = values.get("rope", {"rope_type": "default"})
    return {"rope_parameters": {**scaled, "rope_theta": values["rope_theta"]}}


def _said(data: Mapping[str, Any]) -> Mapping[str, Any]:
    found = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"rope_parameters of config.json is an object, not {found!r}")
    return found
