"""The step that both JAX scripts make: shard_map runs it on each device, with the device's part of the images."""

from functools import partial

import handson.jax
from handson.jax.model import convnet, enlarge, losses

import jax
import optax

# the same on all devices of the mesh; a part of the images on each of them
EVERYWHERE, DIVIDED = jax.P(), jax.P("images")


def make_step(mesh, size, optimizer):
    """A function step(state, images, labels) -> (state, (loss, accuracy)). state: (parameters, statistics of batch
    normalisation, state of the optimizer).

    `images` and `labels` are those of all devices of `mesh`; loss and accuracy are means over all of them.
    """

    @partial(jax.jit, donate_argnums=0)
    @partial(jax.shard_map, mesh=mesh, in_specs=(EVERYWHERE, DIVIDED, DIVIDED), out_specs=EVERYWHERE)
    def step(state, images, labels):
        parameters, statistics, optimizer_state = state

        def loss(parameters):
            outputs, found = convnet(parameters, statistics, enlarge(images, size), training=True)
            accuracy = (outputs.argmax(axis=1) == labels).mean()
            return jax.lax.pmean(losses(outputs, labels).mean(), "images"), jax.lax.pmean((found, accuracy), "images")

        # Parameters are the same everywhere, so JAX adds up their gradients over the devices; of the loss, it is the
        # mean already.
        (mean, (statistics, accuracy)), gradients = jax.value_and_grad(loss, has_aux=True)(parameters)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state)
        parameters = optax.apply_updates(parameters, updates)
        return (parameters, statistics, optimizer_state), (mean, accuracy)

    return step
