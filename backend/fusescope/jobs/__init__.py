"""Jobs: a run folder and a process of its own each. ``submit`` is for pages and the command line and imports
no torch."""
