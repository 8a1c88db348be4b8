"""The device under measurement: its state per round and its measured ceilings."""
