"""What verbs print about runs, records, profiles and generation: their answers as tables and text."""
