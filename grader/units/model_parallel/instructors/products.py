"""The answers to the notebook's gaps on networks split in their products: inputs, what is right, and typical mistakes."""

ANSWERS = {}
