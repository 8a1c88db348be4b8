"""Small batches for any class of transformers, by the names that its forward takes."""

from __future__ import annotations

import inspect

import torch

from tests.models.architectures import tiny


def of(model):
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
    if "spatial_shapes" in names:  # images as patches, one of them smaller
        elements = channels * _of(model.config, "patch_size") ** 2
        whole = torch.ones(2, 16, dtype=torch.long)
        whole[1, 12:] = 0
        yield {
            "pixel_values": torch.randn(2, 16, elements, generator=g),
            "pixel_attention_mask": whole,
            "spatial_shapes": torch.tensor([[4, 4], [3, 4]]),
        }
    if "input_ids" in names and "input_features" in names:
        bins = _of(model.config, "num_mel_bins") or 80
        yield {"input_ids": ids, "input_features": torch.randn(2, bins, 8 * tokens, generator=g)} | padded
    if decoder and (channels := _of(model.config, "num_channels")):  # tokens of several codebooks
        yield {"input_ids": ids} | padded | {"decoder_input_ids": ids[:, :7, None].repeat(1, 1, channels)}
    if codebooks := _of(model.config, "num_codebooks"):  # text and audio tokens at once
        yield {"input_ids": ids[..., None] % 30 * torch.ones(1 + codebooks, dtype=torch.long)} | padded
    if "input_features_mask" in names:
        bins = _of(model.config, "num_mel_bins") or 80
        frames_there = torch.ones(2, 32, dtype=torch.long)
        stacked = bins * (_of(model.config, "num_stacked_frames") or 1)
        for shape in ((2, bins, 32), (2, 32, stacked)):
            yield {"input_features": torch.randn(shape, generator=g), "input_features_mask": frames_there}
    if "qformer_input_ids" in names:
        yield {"input_ids": ids, "qformer_input_ids": ids} | padded | pixels
    if "merge_sizes" in names:
        elements = channels * _of(model.config, "patch_size") ** 2
        yield {
            "pixel_values": torch.randn(32, elements, generator=g),
            "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]]),
            "merge_sizes": torch.tensor([2, 2]),
        }
    if "bbox" in names:
        boxes = torch.tensor([0.1, 0.2, 0.3, 0.4]).expand(2, tokens, 4)
        yield {"input_ids": ids, "bbox": boxes} | padded | decoder
    if "query_embeds" in names:
        image = torch.randn(2, 5, _of(model.config, "encoder_hidden_size") or 64, generator=g)
        queries = torch.randn(2, 4, _of(model.config, "hidden_size"), generator=g)
        yield {"query_embeds": queries, "encoder_hidden_states": image}
    if "past_values" in names:
        length = _of(model.config, "context_length") or 64
        channels_in = _of(model.config, "num_input_channels") or 1
        yield {"past_values": torch.randn(2, length, channels_in, generator=g)}
        series, none = torch.randn(2, length, generator=g), torch.zeros(2, length, dtype=torch.long)
        yield {"past_values": series, "past_values_padding": none} | (
            {"freq": none[:, :1]} if "freq" in names else {}
        )
    if "pixel_values_videos" in names:
        yield {"pixel_values_videos": torch.randn(2, frames, channels, *size, generator=g)}
    if "use_cache" in names and "input_ids" in names:
        yield {"input_ids": ids, "use_cache": False} | padded


def _of(config, name: str):
    for part in (config, *(getattr(config, sub) for sub in config.sub_configs)):
        if part is not None and getattr(part, name, None):
            return getattr(part, name)
    return None
