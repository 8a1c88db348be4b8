"""How exact the execution modes of a model are, module by module, against float64."""
