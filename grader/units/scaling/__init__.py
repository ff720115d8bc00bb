"""Scaling: what many workers would do, predicted from a few measured steps."""
