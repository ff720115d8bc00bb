"""Runs in a sandbox, without student code. Students receive it: yes.

What probes should observe, computed in one process without a student's code; what several units share.
"""
