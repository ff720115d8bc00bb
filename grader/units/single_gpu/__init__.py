"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

Task 1 of the lecture: one device.
"""
