"""Fusion search: a Transformer layer as 15 operators, a fusion scheme as 16 bits."""
