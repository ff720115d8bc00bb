"""The training step of both JAX scripts: shard_map runs it on each device with the device's part of the images."""

from functools import partial

import handson.jax
from handson.jax.model import convnet, enlarge, losses

import jax
import optax

# EVERYWHERE: equal on all devices of the mesh; DIVIDED: each device has a part of the images
EVERYWHERE, DIVIDED = jax.P(), jax.P("images")


def make_step(mesh, size, optimizer):
    """Return a function step(state, images, labels) -> (state, (loss, accuracy)). state: (parameters, statistics of
    batch normalisation, state of the optimizer).

    `images` and `labels` contain the images of all devices of `mesh`. Loss and accuracy are means over all images.
    """

    @partial(jax.jit, donate_argnums=0)
    @partial(jax.shard_map, mesh=mesh, in_specs=(EVERYWHERE, DIVIDED, DIVIDED), out_specs=EVERYWHERE)
    def step(state, images, labels):
        parameters, statistics, optimizer_state = state

        def loss(parameters):
            outputs, found = convnet(parameters, statistics, enlarge(images, size), training=True)
            accuracy = (outputs.argmax(axis=1) == labels).mean()
            return jax.lax.pmean(losses(outputs, labels).mean(), "images"), jax.lax.pmean((found, accuracy), "images")

        # The parameters are equal on all devices, so JAX sums their gradients over the devices. The loss is already a
        # mean over the devices, so the sum needs no division.
        (mean, (statistics, accuracy)), gradients = jax.value_and_grad(loss, has_aux=True)(parameters)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state)
        parameters = optax.apply_updates(parameters, updates)
        return (parameters, statistics, optimizer_state), (mean, accuracy)

    return step
