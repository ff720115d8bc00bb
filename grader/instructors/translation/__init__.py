"""Runs on the instructor's machine: the course in other languages. Students receive it: no, only its results.

The English text is the source. docs/translating.md explains how to translate it.
"""
