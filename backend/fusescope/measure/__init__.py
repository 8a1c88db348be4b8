"""The one timer: correctness first, then interleaved samples until they say something (the rules are in
bench.py's docstring)."""
