"""attn_implementation="fusescope": masks, attention, and the refusal of models that would misread them."""
