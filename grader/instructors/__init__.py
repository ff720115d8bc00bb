"""Runs at the instructor's. Students receive it: no.

What only instructors use: release, grading of a class, gradebook and reports. Students receive no folder of this
name.
"""
