"""Tables that one verb prints about one thing."""
