"""What follows from a profile's tables: nesting, links, launches, gaps, sums."""
