"""Task 2 of the lecture: several devices of one node."""
