"""All layers of a decoder for one new token per sequence: what describes the operator, and its peers."""
