"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

Task 3 of the lecture: several nodes.
"""
