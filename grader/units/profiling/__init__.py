"""Finding out what slows down a training."""
