"""Files of a profile that a stranger may have made, read within bounds that follow from their size."""
