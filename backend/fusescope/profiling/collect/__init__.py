"""Collecting while a job runs: torch traces, memory, telemetry, module ranges."""
