"""Runs on the instructor's machine. Students receive it: no.

The code for instructors only: release, grading of a class, gradebook and reports. Students receive no folder of this
name.
"""
