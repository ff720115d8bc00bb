"""Measurements, for ``make bench``: each compares two things within one run, since absolute times say little on shared
machines."""
