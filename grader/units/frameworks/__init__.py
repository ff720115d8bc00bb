"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

The same training in the other systems: TensorFlow's strategies, Lightning, Accelerate, DataParallel.
"""
