"""Operators of a Transformer layer besides attention."""
