"""Runs like grader/checks, and probes/ next to student code. Students receive it: yes, without the folder instructors.

The unit start: a first job.
"""
