"""From a call of attention() to a kernel: checks, choice, cost model, fast path."""
