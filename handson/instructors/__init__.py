"""What only instructors use. Students receive no folder of this name."""
