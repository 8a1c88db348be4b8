"""The Build page."""
