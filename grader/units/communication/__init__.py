"""Runs like grader/checks, and probes/ next to student code. Students receive it: yes, without the folder instructors.

The unit communication: all-reduces from scratch, and methods that send less than full gradients.
"""
