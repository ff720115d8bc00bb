"""The cost of a large batch: the number of additional images that training needs."""

import numpy


def images_to_accuracy(least, critical, batch):
    """Return the images that training to an accuracy needs with a total batch of `batch` images: least * (1 + batch /
    critical).

    least: images with a very small batch; critical: the batch that needs twice as many (McCandlish, Kaplan, Amodei and
    others, An Empirical Model of Large-Batch Training, arXiv 1812.06162, equation 2.11, in images).
    """
    return least * (1 + numpy.asarray(batch, float) / critical)


def critical_batch(batches, images):
    """Return (least, critical) of images_to_accuracy, fitted to runs by least squares. critical is infinite if bigger
    batches need no more images.

    batches: total batch of each run; images: the number of images that it needed. Raises ValueError if all batches are
    equal.
    """
    batches, images = numpy.asarray(batches, float), numpy.asarray(images, float)
    if len(set(batches.tolist())) < 2:
        raise ValueError("two sizes of the total batch at least")
    slope, least = numpy.polyfit(batches, images, 1)
    if slope <= 0:
        return float(images.mean()), float("inf")
    least = max(least, 0.01 * images.min())
    return float(least), float(least / slope)
