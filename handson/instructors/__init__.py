"""Code that only instructors use. Students do not receive folders of this name."""
