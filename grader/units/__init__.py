"""The units, a folder for each: what is checked in it, and how. Students receive all but the folders called instructors."""
