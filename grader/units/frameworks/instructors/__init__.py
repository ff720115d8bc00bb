"""What only instructors have of this unit."""
