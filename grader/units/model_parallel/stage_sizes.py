"""The sizes of what the stages of a check send: for the probes, and for the checks that know them."""

WIDTH = 3  # numbers of an activation
PIXELS = 2  # of an image, which is no tensor like those that stages send
CLASSES = 4  # scores of an image
IMAGES = 5  # of a micro-batch
