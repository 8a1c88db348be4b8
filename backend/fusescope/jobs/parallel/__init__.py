"""A job over several processes that work at the same time, one for each device: ``launch`` starts and watches
them, ``rank`` is one of them."""

TRACES = "traces"
"""The folder of a run's artifacts into which each rank puts its trace, until they are one profile."""
