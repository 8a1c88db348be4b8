"""The encoder of Whisper: two convolutions over log-mel frames, then layers with LayerNorm before attention
and FFN (Radford et al. 2022, arXiv 2212.04356).

A token is two frames: seq = 1500 for 30 seconds. It takes no mask: every sequence has all its tokens.
"""

from __future__ import annotations

from fusescope.models.describe.family import Config, Weight, dense, norm
from fusescope.models.describe.settings import Settings

KIND = "encoder"
PHASES = ()
NAMES = {
    "whisper-small-encoder": Config(
        "whisper-small-encoder", 768, 12, 12, 64, 3072, positions=1500, eps=1e-5, channels=80
    )
}
TITLE = {"whisper-small-encoder": "Whisper small, encoder"}
SETTINGS = Settings(
    "Whisper",
    "whisper",
    "WhisperConfig",
    "models.whisper.modeling_whisper.WhisperEncoder",
    {
        "hidden": "d_model",
        "layers": "encoder_layers",
        "heads": "encoder_attention_heads",
        "ffn": "encoder_ffn_dim",
        "positions": "max_source_positions",
        "channels": "num_mel_bins",
        "activation": "activation_function",
    },
    {"activation": "gelu", "eps": 1e-5},
    deviation="init_std",
)
STRUCTURE = None
PREFIXES = ("", "model.encoder.", "encoder.")
IGNORED = ("model.decoder.*", "decoder.*", "proj_out.weight")
SEQ = 1500
INPUT = "input_features"

_L, _N = "layers.{i}", "encoder/layer {i}"
WEIGHTS = (
    Weight("conv1.weight", ("hidden", "channels", 3), "embeddings/convolution 1"),
    Weight("conv1.bias", ("hidden",), "embeddings/convolution 1"),
    Weight("conv2.weight", ("hidden", "hidden", 3), "embeddings/convolution 2"),
    Weight("conv2.bias", ("hidden",), "embeddings/convolution 2"),
    Weight("embed_positions.weight", ("positions", "hidden"), "embeddings/position"),
    *norm(f"{_L}.self_attn_layer_norm", f"{_N}/LayerNorm 1"),
    *dense(f"{_L}.self_attn.q_proj", "inner", "hidden", f"{_N}/attention/query"),
    Weight(f"{_L}.self_attn.k_proj.weight", ("inner", "hidden"), f"{_N}/attention/key"),
    *dense(f"{_L}.self_attn.v_proj", "inner", "hidden", f"{_N}/attention/value"),
    *dense(f"{_L}.self_attn.out_proj", "hidden", "inner", f"{_N}/attention/output"),
    *norm(f"{_L}.final_layer_norm", f"{_N}/LayerNorm 2"),
    *dense(f"{_L}.fc1", "ffn", "hidden", f"{_N}/intermediate"),
    *dense(f"{_L}.fc2", "hidden", "ffn", f"{_N}/output"),
    *norm("layer_norm", "LayerNorm"),
)
