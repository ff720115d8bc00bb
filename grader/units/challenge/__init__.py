"""Runs like grader/checks, and probes/ next to student code. Students receive it: yes, without the folder instructors.

The unit challenge: the grader trains with a student's code, and compares its time with the plain solution's.
"""
