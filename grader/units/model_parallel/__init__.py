"""Unit model_parallel: does the network fit, and what helps if it does not."""
