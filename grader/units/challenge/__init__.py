"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

Unit challenge: the grader trains with a student's code, and measures it against the plain solution.
"""
