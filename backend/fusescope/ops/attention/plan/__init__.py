"""From a mask to what the kernels read: tiles, lists, bitmaps, schedule, one buffer."""
