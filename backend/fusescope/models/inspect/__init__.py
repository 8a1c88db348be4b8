"""What a profiler sees of one call of a model: time by layer part, and the attention that ran."""
