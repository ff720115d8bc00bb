"""The answers to the notebook's gaps on pipelines: inputs, what is right, and typical mistakes."""

ANSWERS = {}
