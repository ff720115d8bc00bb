"""Runs like grader/checks, and probes/ next to student code. Students receive it: yes, without the folder instructors.

The unit profiling: finding where the time of a training run is spent, and speeding up three slow scripts.
"""
