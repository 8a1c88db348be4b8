"""The Scaling page: one model over several devices."""
