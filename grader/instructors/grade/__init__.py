"""Grading a class: submissions are collected, their checks placed on the engines of an ipyparallel cluster, the verdicts kept and told.

grading.py runs it all, work.py cuts it into pieces and is what engines do, placing.py has the engines do it, cluster.py starts them.
"""
