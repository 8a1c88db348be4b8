"""A model over several devices: measured points, predictions dashed, laws, and what ranks do."""
