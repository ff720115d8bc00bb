"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

Communication: all-reduces from scratch, and methods that send less than full gradients.
"""
