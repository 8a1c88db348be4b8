"""Records, errors, discovery, paths, environment and doctor: the basis of every other room."""
