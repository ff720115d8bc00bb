"""Runs in a sandbox, without student code. Students receive it: yes.

The expected observations of probes, which one process computes without a student's code; the oracles that several units
share.
"""
