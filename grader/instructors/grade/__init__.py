"""Runs at the instructor's; work.py in the engines. Students receive it: no.

Grades a class: collects the submissions, runs their checks on the engines of an ipyparallel cluster, stores and
reports the verdicts.

grading.py runs all of this; work.py cuts it into pieces, and runs a piece on an engine; dispatch.py gives pieces to the
engines; ipp_cluster.py starts the engines.
"""
