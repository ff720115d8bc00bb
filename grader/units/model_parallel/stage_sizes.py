"""The sizes of what the stages of a check send: for the probes, and for the checks that know them."""

WIDTH = 3  # numbers of an activation
CLASSES = 4  # scores of an image
IMAGES = 5  # of a micro-batch
