"""Runs like grader/checks, and probes/ next to student code. Students receive it: yes, without the folder instructors.

The unit model_parallel: memory, pipelines, and networks that are split among ranks.
"""
