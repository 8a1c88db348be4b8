"""Families of models, one file each, found by name (what a file defines: ``_base.DEFINES``). No torch."""
