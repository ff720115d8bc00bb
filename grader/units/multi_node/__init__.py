"""Task 3 of the lecture: several nodes."""
