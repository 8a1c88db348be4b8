"""Several ranks of one job against each other: time, collectives, clocks, stragglers, critical path. Times
in ns."""
