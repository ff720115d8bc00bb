"""Runs like grader/checks, and probes/ next to student code. Students receive it: yes, without the folders instructors.

Each unit has a folder with the checks of the gaps in solutions/NN_topic. grader/course.py finds the units by their
names.
"""
