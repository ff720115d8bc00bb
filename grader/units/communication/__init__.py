"""Communication: all-reduces from scratch, and what can be sent in place of full gradients."""
