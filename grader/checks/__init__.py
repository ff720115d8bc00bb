"""Runs where verdicts are made, an engine or a student's kernel, never beside student code. Students receive it: yes.

What the checks of several units share. The checks of a unit are in grader/units.
"""
