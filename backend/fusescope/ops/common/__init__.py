"""What several operators share. Nothing here is an operator."""
