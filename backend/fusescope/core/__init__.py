"""Records, errors, discovery, paths, environment and doctor: what every other room stands on."""
