"""The checks of the gaps on networks split in their products."""

CHECKS = {}
NOTEBOOK = ()
