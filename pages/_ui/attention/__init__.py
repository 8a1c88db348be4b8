"""The Attention page: our best kernel against the best peer by mask and shape."""
