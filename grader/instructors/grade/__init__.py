"""Grades a class: collects the submissions, runs their checks on the engines of an ipyparallel cluster, stores and
reports the verdicts.

grading.py runs all of this; work.py cuts it into pieces, and runs a piece on an engine; placing.py assigns pieces to
engines; cluster.py starts the engines.
"""
