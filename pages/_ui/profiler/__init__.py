"""The Profiler page."""
