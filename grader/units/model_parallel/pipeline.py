"""The checks of the gaps on pipelines."""

CHECKS = {}
NOTEBOOK = ()
