"""Run folders, what is in them, and queries over all of them. The folder is the truth; every index is
disposable."""
