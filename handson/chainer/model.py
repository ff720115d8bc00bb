"""The network that all tasks train, in Chainer: the same layers as handson.pytorch.model, as a test verifies."""

import functools

import chainer
import chainer.functions as F
import chainer.links as L
import numpy
from chainer.links.model.vision.resnet import ResNet50Layers

LARGE = 64 * 64  # pixels of an image; for larger images, a convolution processes the samples of a batch one by one


def get_model(name, classes):
    """Return the network that `--model` calls "convnet" or "resnet50"."""
    return {"convnet": ConvNet, "resnet50": ResNet50}[name](classes)


class Convolution2D(L.Convolution2D):
    """Chainer's convolution, which processes large images one by one on a CPU: the same sums, in half the time.

    Chainer copies every patch under the kernel into a matrix, 39 MB for 32 images of 256 x 256 pixels, and copies it
    again to transpose it. The matrix of a single image needs no second copy, and fits into the cache.
    """

    def forward(self, images):
        if images.shape[2] * images.shape[3] < LARGE or self.xp is not numpy:
            return super().forward(images)
        one_by_one = F.split_axis(images, len(images), axis=0)
        return F.concat([super(Convolution2D, self).forward(image) for image in one_by_one], axis=0)


def conv_block(inputs, outputs, kernel, stride):
    """Return convolution, batch normalisation and ReLU: (N, inputs, H, W) -> (N, outputs, H/stride, W/stride)."""
    return chainer.Sequential(
        Convolution2D(inputs, outputs, kernel, stride, pad=kernel // 2, nobias=True),
        L.BatchNormalization(outputs, eps=1e-5),
        F.relu,
    )


class ConvNet(chainer.Sequential):
    """Map images (N, 3, H, W), H and W of any size, to class scores (N, classes)."""

    def __init__(self, classes=10):
        super().__init__(
            conv_block(3, 16, kernel=5, stride=4),
            conv_block(16, 32, kernel=3, stride=2),
            conv_block(32, 64, kernel=3, stride=2),
            conv_block(64, 64, kernel=3, stride=2),
            adaptive_average_pooling,
            L.Linear(4 * 4 * 64, classes),
        )


class ResNet50(ResNet50Layers):
    """Chainer's own network, with random weights: map images (N, 3, H, W), H and W 32 or more, to class scores (N,
    classes)."""

    def __init__(self, classes=10):
        super().__init__(pretrained_model=None)
        del self.fc6  # this layer has the 1,000 classes of ImageNet
        with self.init_scope():
            self.fc6 = L.Linear(2048, classes)

    def forward(self, images):
        return super().forward(images, layers=["fc6"])["fc6"]


class WideNet(chainer.Sequential):
    """Map images (N, 3, H, W), H = W a multiple of 16, to class scores (N, classes). One dense layer has most of the
    136,000 parameters."""

    def __init__(self, classes=10):
        super().__init__(
            conv_block(3, 8, kernel=5, stride=1),
            functools.partial(F.max_pooling_2d, ksize=2),
            conv_block(8, 16, kernel=5, stride=1),
            max_pooling_to_8,
            L.Linear(8 * 8 * 16, 128),
            F.relu,
            L.Linear(128, classes),
        )


def max_pooling_to_8(images):
    """Return the maxima of a grid of 8 x 8 regions: (N, C, H, W) -> (N, C, 8, 8); H = W is a multiple of 8."""
    return F.max_pooling_2d(images, images.shape[2] // 8)


def adaptive_average_pooling(images, size=4):
    """Return means over a grid of size x size regions, for images of any size: (N, C, H, W) -> (N, C, size, size), like
    torch."""
    for axis in (2, 3):
        means = images.xp.asarray(_means(images.shape[axis], size))
        images = F.moveaxis(F.tensordot(images, means, axes=([axis], [1])), -1, axis)
    return images


def _means(length, parts):
    """Return the matrix (parts, length) that averages each of `parts` regions; they overlap if `length` is not a
    multiple of `parts`."""
    matrix = numpy.zeros((parts, length), "float32")
    for part in range(parts):
        begin, end = part * length // parts, -(-(part + 1) * length // parts)
        matrix[part, begin:end] = 1 / (end - begin)
    return matrix
