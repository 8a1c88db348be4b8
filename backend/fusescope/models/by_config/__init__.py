"""Models by the path of a config.json: any architecture that the installed transformers knows. Torch-free but
for transformers_model.py, which a process of its own runs."""
