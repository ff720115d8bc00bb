"""Runs on the instructor's machine; work.py runs in the engines. Students receive it: no.

Grade a class: collect the submissions, run their checks on the engines of an ipyparallel cluster, store and report the
verdicts.

grading.py controls this; work.py splits it into pieces, and runs a piece on an engine; dispatch.py assigns pieces to
the engines; ipp_cluster.py starts the engines.
"""
