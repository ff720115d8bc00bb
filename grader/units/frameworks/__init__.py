"""Runs like grader/checks, and probes/ next to student code. Students receive it: yes, without the folder instructors.

The unit frameworks: the same training with TensorFlow's strategies, Lightning, Accelerate and DataParallel.
"""
