"""A model over several devices: measured points, predictions dashed beside them, laws, and what ranks do."""
