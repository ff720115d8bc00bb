"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

Unit frameworks: the same training with TensorFlow's strategies, Lightning, Accelerate and DataParallel.
"""
