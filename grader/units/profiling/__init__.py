"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

Profiling: where the time of a training goes, and three slow scripts.
"""
