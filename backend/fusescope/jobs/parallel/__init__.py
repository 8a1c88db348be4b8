"""A job over several processes that work at the same time, one for each device: ``launch`` starts and watches
them, ``rank`` is one of them."""
