"""Training on several GPUs of a node."""
