"""Runs as grader/checks; probes/ beside student code. Students receive it: yes, but for the folder instructors.

Unit attention_and_experts: sequences and experts that are split among ranks.
"""
