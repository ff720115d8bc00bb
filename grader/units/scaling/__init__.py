"""Runs like grader/checks, and probes/ next to student code. Students receive it: yes, without the folder instructors.

The unit scaling: the throughput of many workers, predicted from a few measured steps.
"""
