"""Charts of profiles: time breakdown, timeline, memory, telemetry, counters."""
