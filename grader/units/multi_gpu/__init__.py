"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

The unit multi_gpu: training on several devices of one node.
"""
