"""What a device allows: its rates, and the least time of a call at them."""
