"""The views of a profile, one file each."""
