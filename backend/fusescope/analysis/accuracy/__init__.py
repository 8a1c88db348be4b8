"""How far results lie from their reference: sums, error figures, growth along depth."""
