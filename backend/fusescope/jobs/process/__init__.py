"""Processes of a job: how a worker starts, holds its device, and watches the body that runs the kind."""
