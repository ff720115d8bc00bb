"""Runs like grader/checks, and probes/ next to student code. Students receive it: yes, without the folder instructors.

The unit attention_and_experts: sequences and experts that are split among ranks.
"""
