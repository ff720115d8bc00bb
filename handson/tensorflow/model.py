"""The network that all tasks train, in Keras: the same layers as handson.pytorch.model, as a test verifies."""

import keras
import numpy
import tensorflow as tf

from handson.training.data import averaging, stretching

LAYERS = keras.layers


def as_torch():
    """Return torch's initializer of weights. Keras reads the seed of an initializer when it is created, so call this
    for each layer, after `set_random_seed`."""
    return keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")


class Enlarge(LAYERS.Layer):
    """Enlarge images (N, 1 or 3, height, width) to (N, size, size, 3), like handson.training.data.enlarge.

    It multiplies two matrices. A product `matrix @ images`, for which TensorFlow has to repeat the matrix for each
    image, overwrites memory of other operations (TensorFlow 2.21 on CPUs, seen as crashes at random places).
    """

    def __init__(self, size):
        super().__init__()
        self.size = size

    def build(self, shape):
        self.down, self.across = (
            numpy.ascontiguousarray(stretching(length, self.size).T, "float32") for length in shape[2:]
        )

    def call(self, images):
        _, channels, height, width = images.shape
        rows = tf.reshape(tf.matmul(tf.reshape(images, [-1, width]), self.across), [-1, height, self.size])
        columns = tf.matmul(tf.reshape(tf.transpose(rows, [0, 2, 1]), [-1, height]), self.down)
        large = tf.transpose(tf.reshape(columns, [-1, channels, self.size, self.size]), [0, 3, 2, 1])
        return tf.tile(large, [1, 1, 1, 3]) if channels == 1 else large


class Grid(LAYERS.Layer):
    """Return means over a grid of 4 x 4 regions, for images of any size, in torch's order: (N, H, W, C) -> (N, C *
    16)."""

    def build(self, shape):
        down, across = (averaging(length, 4).astype("float32") for length in shape[1:3])
        self.regions = numpy.einsum("ih,jw->hwij", down, across).reshape(shape[1] * shape[2], 16)

    def call(self, images):
        _, height, width, channels = images.shape
        pixels = tf.reshape(tf.transpose(images, [0, 3, 1, 2]), [-1, height * width])
        return tf.reshape(tf.matmul(pixels, self.regions), [-1, channels * 16])


class Convolution(LAYERS.Conv2D):
    """Pad all four sides equally, as torch does; with a stride, Keras's padding="same" pads more at the end."""

    def call(self, images):
        sides = [[0, 0], *[[size // 2, size // 2] for size in self.kernel_size], [0, 0]]
        return tf.nn.conv2d(images, self.kernel, self.strides, sides)


def conv_block(outputs, kernel, stride, normalise=True):
    """Return convolution, batch normalisation and ReLU: (N, H, W, inputs) -> (N, H/stride, W/stride, outputs), with
    torch's constants of batch normalisation."""
    convolution = Convolution(outputs, kernel, stride, padding="same", use_bias=False, kernel_initializer=as_torch())
    return [
        convolution,
        *[LAYERS.BatchNormalization(momentum=0.9, epsilon=1e-5) for _ in range(normalise)],
        LAYERS.ReLU(),
    ]


def get_model(name, shape, size, classes):
    """Return the network that `--model` calls "convnet" or "resnet50". See `convnet`."""
    return {"convnet": convnet, "resnet50": resnet50}[name](shape, size, classes)


def resnet50(shape, size, classes=10):
    """Return Keras's own network, with random weights, for images of 32 pixels or more. See `convnet`."""
    layers = keras.applications.ResNet50(
        weights=None, classes=classes, input_shape=(size, size, 3), classifier_activation=None
    )
    return keras.Sequential([LAYERS.Input(shape), Enlarge(size), layers])


def convnet(shape, size, classes=10, normalise=True):
    """Return a network that maps images (N, *shape), shape = (1 or 3, height, width), to class scores (N, classes). It
    first enlarges them to `size` pixels."""
    return keras.Sequential(
        [
            LAYERS.Input(shape),
            Enlarge(size),
            *conv_block(16, kernel=5, stride=4, normalise=normalise),
            *conv_block(32, kernel=3, stride=2, normalise=normalise),
            *conv_block(64, kernel=3, stride=2, normalise=normalise),
            *conv_block(64, kernel=3, stride=2, normalise=normalise),
            Grid(),
            LAYERS.Dense(
                classes,
                kernel_initializer=as_torch(),
                bias_initializer=keras.initializers.RandomUniform(-1 / 32, 1 / 32),
            ),
        ]
    )
