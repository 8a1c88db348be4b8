"""Fused attention as operators: dense or masked, packed sequences, decoding. The work behind them is
ops/attention."""
