"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

Communication: all-reduces from scratch, and what can be sent in place of full gradients.
"""
