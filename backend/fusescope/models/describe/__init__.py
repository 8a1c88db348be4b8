"""What a model is and costs, by tables alone. Torch-free."""
