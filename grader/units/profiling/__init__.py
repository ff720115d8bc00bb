"""Profiling: where the time of a training goes, and three slow scripts."""
