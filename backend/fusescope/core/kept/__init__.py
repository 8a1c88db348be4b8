"""What is kept in memory of what was made before: bounded, and of files as they are now."""
