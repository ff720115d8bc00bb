"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

Scaling: what many workers would do, predicted from a few measured steps.
"""
