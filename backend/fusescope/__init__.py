"""FuseScope's backend: builds, runs, checks, times and stores; never imports streamlit.

ARCHITECTURE.md says which room may import which; tests/test_architecture.py enforces it.
"""

__version__ = "0.1.0"
