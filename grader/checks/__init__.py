"""Runs where verdicts are made, an engine or a student's kernel, never with student code. Students receive it: yes.

The checks that several units share. The checks of a unit are in grader/units.
"""
