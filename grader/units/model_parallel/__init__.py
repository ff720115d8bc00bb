"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

Unit model_parallel: does the network fit, and what helps if it does not.
"""
