"""What the records of a comparison say, as sentences and clauses."""
