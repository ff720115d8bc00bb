"""The sizes of the tensors that stages send in a check, for the probes and the checks."""

WIDTH = 3  # numbers per activation
PIXELS = 2  # numbers per image: an image does not have the shape of a message
CLASSES = 4  # scores per image
IMAGES = 5  # images per micro-batch
