"""Charts of whole models: parameters, layer parts, accuracy along depth."""
