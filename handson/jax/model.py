"""The network that all tasks train, for JAX: the same layers as handson.pytorch.model, as a test verifies. The network
is a function of its parameters and of the statistics of batch normalisation, and returns new statistics."""

import jax
import jax.numpy as jnp
import numpy

from handson.training.data import averaging, stretching

BLOCKS = ((16, 5, 4), (32, 3, 2), (64, 3, 2), (64, 3, 2))  # per block: output channels, size of the kernel, stride
GRID = 4


def enlarge(images, size):
    """Return images (N, 1 or 3, height, width) as (N, size, size, 3), like handson.training.data.enlarge."""
    down, across = (jnp.asarray(stretching(length, size), "float32") for length in images.shape[2:])
    large = jnp.einsum("ih,nchw,jw->nijc", down, images, across)
    return jnp.tile(large, (1, 1, 1, 3 // images.shape[1]))


def initial(seed, classes=10):
    """Return (parameters, statistics), NumPy arrays with torch's distribution: uniform, up to 1 / sqrt(inputs of an
    output).

    They are drawn with NumPy, because JAX would compile a program for each shape, which takes seconds.
    """
    chance, blocks, statistics, inputs = numpy.random.RandomState(seed), [], [], 3

    def uniform(shape, inputs):
        return chance.uniform(-1, 1, shape).astype("float32") / inputs**0.5

    for outputs, side, _ in BLOCKS:
        ones, zeros = numpy.ones(outputs, "float32"), numpy.zeros(outputs, "float32")
        blocks.append(
            {"kernel": uniform((side, side, inputs, outputs), inputs * side**2), "scale": ones, "shift": zeros}
        )
        statistics.append({"mean": zeros, "variance": ones})
        inputs = outputs
    inputs *= GRID**2
    return {
        "blocks": blocks,
        "dense": {"kernel": uniform((inputs, classes), inputs), "bias": uniform(classes, inputs)},
    }, statistics


def convnet(parameters, statistics, images, training):
    """Map images (N, H, W, 3) to (class scores (N, classes), new statistics)."""
    found = []
    for (_, side, stride), block, before in zip(BLOCKS, parameters["blocks"], statistics):
        padding, order = [(side // 2, side // 2)] * 2, ("NHWC", "HWIO", "NHWC")
        images = jax.lax.conv_general_dilated(
            images, block["kernel"], (stride, stride), padding, dimension_numbers=order
        )
        images, after = normalise(images, block, before, training)
        images = jax.nn.relu(images)
        found.append(after)
    down, across = (jnp.asarray(averaging(length, GRID), "float32") for length in images.shape[1:3])
    grid = jnp.einsum("ih,nhwc,jw->ncij", down, images, across).reshape(len(images), -1)
    return grid @ parameters["dense"]["kernel"] + parameters["dense"]["bias"], found


def normalise(images, block, before, training, momentum=0.1, epsilon=1e-5):
    """Return (images, new statistics) after batch normalisation with torch's constants."""
    mean, variance, after = before["mean"], before["variance"], before
    if training:
        mean, variance = images.mean((0, 1, 2)), images.var((0, 1, 2))
        number = images.size // images.shape[-1]
        found = {"mean": mean, "variance": variance * number / (number - 1)}
        after = jax.tree.map(lambda old, new: (1 - momentum) * old + momentum * new, before, found)
    return (images - mean) * jax.lax.rsqrt(variance + epsilon) * block["scale"] + block["shift"], after


def losses(outputs, labels):
    """Return the cross-entropy of each image, (N,)."""
    return -jnp.take_along_axis(jax.nn.log_softmax(outputs), labels[:, None], axis=1)[:, 0]
