"""The numbers with which ranks start, for the probes and for the checks."""

import numpy

CLASSES = 10  # the classes of the images of train_cntk.py, unless a case sets another number
RATE = 0.125  # the learning rate of the parameter server; products of this rate with whole numbers are exact
LENGTH = 5  # numbers in its `parameters`


def pixels(case, part="train"):
    """Return the images (samples, 2, 2) of a case, uint8, which all differ, and their labels (samples,), which contain
    the last class."""
    chance, samples = numpy.random.RandomState((case["seed"] + len(part)) % 2**32), case["samples"]
    images = chance.randint(0, 256, (samples, 2, 2)).astype("uint8")
    images[:, 0, 0] = numpy.arange(samples)  # identifies the image
    classes = case.get("classes", CLASSES)
    labels = chance.randint(0, classes, samples)
    labels[chance.randint(samples)] = classes - 1
    return images, labels
