"""Building a model and running it in each execution mode. Imports torch inside functions."""
