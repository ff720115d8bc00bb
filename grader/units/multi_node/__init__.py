"""Training on several nodes."""
