"""Training on one GPU."""
