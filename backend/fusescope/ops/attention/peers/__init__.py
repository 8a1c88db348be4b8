"""What a user could pick instead of our attention kernels."""
