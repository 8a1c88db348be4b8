"""Collecting traces and reading tables out of them. Answers "why"; no latency shown as such ever comes from
here."""
