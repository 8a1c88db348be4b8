"""How sparse the attention probabilities of a model are."""
