"""What the checks of several units share. The checks of a unit are in grader/units."""
