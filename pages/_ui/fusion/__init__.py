"""The Fusion page."""
