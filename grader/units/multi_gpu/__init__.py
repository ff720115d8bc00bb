"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

Task 2 of the lecture: several devices of one node.
"""
