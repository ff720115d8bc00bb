"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folders called instructors.

The units: a folder for each, which says what is checked in solutions/NN_topic. grader/course.py finds them by their
names.
"""
