"""Runs like grader/checks, and probes/ next to student code. Students receive it: yes, without the folder instructors.

The unit multi_node: training on several nodes.
"""
