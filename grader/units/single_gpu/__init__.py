"""Task 1 of the lecture: one device."""
