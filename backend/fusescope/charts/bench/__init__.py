"""Charts of operator comparisons: speed-up, sweeps, roofline, accuracy, history."""
