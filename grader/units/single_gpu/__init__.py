"""Runs like grader/checks, and probes/ next to student code. Students receive it: yes, without the folder instructors.

The unit single_gpu: training on one device.
"""
