"""Loops as the systems' own documentation shows them, on the course's network and images and with its optimizer:
``python -m tests.bench.documented SYSTEM SIZE EPOCHS`` prints the images/s of one worker, without the first epoch.
`frameworks` compares the course's scripts with them."""

import sys
import time

from handson.training import data, virtual_gpus

BATCHSIZE = 32


class Clock:
    """The images/s from the end of the first epoch to the end of the last step."""

    def __init__(self, epoch):
        """epoch: its images."""
        self.epoch, self.images = epoch, 0

    def step(self, images):
        self.end = time.perf_counter()
        self.images += images
        if self.images == self.epoch:
            self.begin = self.end

    def rate(self):
        return (self.images - self.epoch) / (self.end - self.begin)


def pytorch(size, epochs, clock, accelerator=None):
    """The loop of PyTorch's first tutorial; with an accelerator, that of Accelerate's."""
    import torch
    from torch.utils.data import DataLoader

    from handson.pytorch.model import ConvNet

    torch.set_num_threads(1)
    train_set, _ = data.load("digits")
    model, criterion = ConvNet(), torch.nn.CrossEntropyLoss()
    optimizer, loader = (
        torch.optim.SGD(model.parameters(), 0.05, momentum=0.9),
        DataLoader(train_set, BATCHSIZE, shuffle=True),
    )
    if accelerator:
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(data.enlarge(images, size)), labels)
            accelerator.backward(loss) if accelerator else loss.backward()
            optimizer.step()
            clock.step(len(labels))


def accelerate(size, epochs, clock):
    from handson import frameworks

    frameworks.add()
    from accelerate import Accelerator

    pytorch(size, epochs, clock, Accelerator(cpu=True))


def lightning(size, epochs, clock):

    import handson.lightning  # noqa: F401

    import lightning as L
    import torch
    from torch.utils.data import DataLoader

    from handson.pytorch.model import ConvNet

    torch.set_num_threads(1)
    train_set, _ = data.load("digits")

    class Training(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = ConvNet()

        def training_step(self, batch, number):
            images, labels = batch
            return torch.nn.functional.cross_entropy(self.model(data.enlarge(images, size)), labels)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)

        def on_train_batch_end(self, outputs, batch, number):
            clock.step(len(batch[1]))

    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
    }
    trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=epochs, **quiet)
    trainer.fit(Training(), DataLoader(train_set, BATCHSIZE, shuffle=True))


def tensorflow(size, epochs, clock):
    from handson.tensorflow import devices
    from handson.tensorflow.model import convnet

    import keras
    import tensorflow as tf

    devices.use([0])
    train_set, _ = data.load_arrays("digits")

    class Steps(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            clock.step(min(BATCHSIZE, len(train_set) - batch * BATCHSIZE))

    model = convnet(train_set.images.shape[1:], size)
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    batches = (
        tf.data.Dataset.from_tensor_slices((train_set.images, train_set.labels))
        .shuffle(len(train_set))
        .batch(BATCHSIZE)
    )
    model.fit(batches, epochs=epochs, verbose=0, callbacks=[Steps()])


def jax(size, epochs, clock):
    """The loop of JAX's example mnist_classifier, a jitted update of a tree of parameters, with momentum."""
    from handson.jax import devices
    from handson.jax.model import convnet, enlarge, initial, losses

    import jax
    import numpy
    import optax

    devices.use([0])
    train_set, _ = data.load_arrays("digits")
    parameters, statistics = initial(0)
    optimizer = optax.sgd(0.05, momentum=0.9)
    state = optimizer.init(parameters)

    @jax.jit
    def update(parameters, statistics, state, images, labels):
        def loss(parameters):
            outputs, found = convnet(parameters, statistics, enlarge(images, size), training=True)
            return losses(outputs, labels).mean(), found

        gradients, statistics_then = jax.grad(loss, has_aux=True)(parameters)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(parameters, updates), statistics_then, state

    for epoch in range(epochs):
        order = numpy.random.RandomState(epoch).permutation(len(train_set))
        for begin in range(0, len(order), BATCHSIZE):
            batch = order[begin : begin + BATCHSIZE]
            images, labels = train_set.images[batch], train_set.labels[batch]
            parameters, statistics, state = jax.block_until_ready(update(parameters, statistics, state, images, labels))
            clock.step(len(batch))


def main():
    system, size, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    clock = Clock(len(data.load_arrays("digits")[0]))
    virtual_gpus.pin(0)
    globals()[system](size, epochs, clock)
    print(clock.rate())


if __name__ == "__main__":
    main()
