"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

The unit single_gpu: training on one device.
"""
