"""What some tiny configurations need besides ``tiny.SIZES``, by model type: sizes that fit each other, and
layers of both kinds in hybrids.

Head sizes of keys and values stay those of the real model where they differ.
"""

_ALL_HEADS = {"num_key_value_heads": 2}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_SECTIONS = {"rope_parameters": _ROPE | {"mrope_section": [4, 6, 6]}}
_SWIN = {"embed_dim": 96, "image_size": 128, "patch_size": 4, "window_size": 4}

OVERRIDES: dict[str, dict] = {
    "axk1": _ALL_HEADS,
    "AXK1": _ALL_HEADS,
    "AXK2": _ALL_HEADS,
    "axk2": _ALL_HEADS,
    "bailing_hybrid": _ALL_HEADS,
    "bamba": {"attn_layer_indices": [1]},
    "blt": {"encoder_hash_byte_group_vocab": 100},
    "cohere_compass": {"layer_types": ["full_attention", "sliding_attention"]},
    "deepseek_v2": _ALL_HEADS,
    "deepseek_v3": _ALL_HEADS,
    "deepseek_v32": _ALL_HEADS,
    "diffllama": {"num_attention_heads": 4, "num_key_value_heads": 2},
    "dots1": {"n_shared_experts": 1},
    "dots3_note": _ALL_HEADS,
    "dots3_note_text": _ALL_HEADS,
    "ernie4_5_moe": {"moe_k": 2},
    "esmc": _ALL_HEADS,
    "gemma3n_text": {"vocab_size_per_layer_input": 99, "num_kv_shared_layers": 0},
    "gemma4_text": {"vocab_size_per_layer_input": 99, "num_kv_shared_layers": 0},
    "glm4v_moe_text": {"rope_parameters": _ROPE | {"partial_rotary_factor": 0.5, "mrope_section": [2, 3, 3]}},
    "glm4v_text": _SECTIONS,
    "glm_image_text": _SECTIONS,
    "glm_ocr_text": _SECTIONS,
    "glm4_moe_lite": _ALL_HEADS,
    "glm5_next": _ALL_HEADS,
    "glm5_next_text": _ALL_HEADS,
    "glm_moe_dsa": _ALL_HEADS,
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": _ALL_HEADS,
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "longcat_flash": {"head_dim": 64, "num_key_value_heads": 2},
    "mistral4": _ALL_HEADS,
    "minicpm3": _ALL_HEADS,
    "moonshine": {"encoder_num_key_value_heads": 2, "decoder_num_key_value_heads": 2},
    "musicgen_decoder": {"num_codebooks": 1},
    "musicgen_melody_decoder": {"num_codebooks": 1},
    "paddleocr_vl_text": _SECTIONS,
    "qwen2_5_vl_text": _SECTIONS,
    "qwen2_vl_text": _SECTIONS,
    "recurrent_gemma": {"num_hidden_layers": 3},
    "seamless_m4t": {"speech_encoder_attention_heads": 2},
    "seamless_m4t_v2": {"speech_encoder_attention_heads": 2},
    "kosmos_2_5_text_model": {"attention_heads": 2},
    "swin": _SWIN,
    "xmod": {"default_language": "en_XX"},
    "youtu": _ALL_HEADS,
    "zaya": {"num_experts_per_tok": 1},
}
