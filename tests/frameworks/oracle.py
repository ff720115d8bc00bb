"""What a training in TensorFlow is held to: the steps of one process with one big batch. Imported in forked processes,
too: TensorFlow within functions."""

from dataclasses import replace
from pathlib import Path

import numpy
from loading import load

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions/07_frameworks/tensorflow"
SHAPE, SIZE, IMAGES, RATE = (1, 8, 8), 32, 24, 0.05


def solution(name, folder=SOLUTIONS):
    """A module of the unit's solutions."""
    return load(folder / f"{name}.py")


def options(path, words):
    """What a script gets of these words."""
    from handson.training import options

    return options.training_parser(path, None).parse_args(words)


def images():
    """(images, labels), the same each time."""
    chance = numpy.random.RandomState(0)
    return chance.rand(IMAGES, *SHAPE).astype("float32"), chance.randint(0, 10, IMAGES)


def network(normalise=False):
    """The course's network, with the same weights each time; without batch normalisation, whose statistics are those of
    one replica."""

    from handson.tensorflow.model import convnet

    import keras

    keras.utils.set_random_seed(1)
    return convnet(SHAPE, SIZE, normalise=normalise)


def optimizer():

    import keras

    return keras.optimizers.SGD(RATE, momentum=0.9)


def weights(model):
    return numpy.concatenate([numpy.ravel(one) for one in model.get_weights()])


def by_hand(batches, weigh=lambda labels: numpy.full(len(labels), 1 / len(labels)), make=network):
    """(the weights after steps of one process, the loss of each step), where image i of a batch has the weight
    weigh(labels)[i]."""

    import tensorflow as tf

    model, sgd, found = make(), optimizer(), []
    for of_batch, labels in batches:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(of_batch, training=True))
            loss = tf.reduce_sum(losses * weigh(labels).astype("float32"))
        sgd.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        found.append(float(loss))
    return weights(model), found


def cut(of_all, labels, batch, epochs=2):
    """The batches of some epochs, in the order of the images."""
    return [
        (of_all[begin : begin + batch], labels[begin : begin + batch])
        for _ in range(epochs)
        for begin in range(0, len(of_all), batch)
    ]


def loop(strategy, of_all, total, seed=3, epochs=2, make=network):
    """Train with the student's functions. Returns (the weights, the numbers of the images that the replicas of this
    process had in each step)."""

    import tensorflow as tf

    replicas, used = solution("replicas"), []
    model, sgd = replicas.build(strategy, make, optimizer)
    batches = replicas.divided(strategy, of_all, numpy.arange(len(of_all)), total, seed=seed)
    sizes = [min(total, len(of_all) - begin) for begin in range(0, len(of_all), total)]

    @tf.function
    def step(of_batch, numbers, size):
        return strategy.run(
            lambda one, numbers: replicas.replica_step(model, sgd, one, numbers % 10, size)[1], args=(of_batch, numbers)
        )

    for _ in range(epochs):
        for (of_batch, numbers), size in zip(batches, sizes):
            used.append(numpy.concatenate([part.numpy() for part in strategy.experimental_local_results(numbers)]))
            step(of_batch, numbers, size)
    return weights(model), used


def by_torch(model, epochs, train_set, test_set, size, rate, statistics=lambda values: sum(values) / len(values)):
    """What PyTorch makes of a ConvNet in one process: an array (epochs, 2) with the loss in training and the one on the
    test set after it, as means.

    epochs: of each, the steps; of a step, the numbers of the images of each worker. What a worker has is normalised by
    itself; statistics: what becomes of the running statistics of all workers.
    """
    import torch
    import torch.nn.functional as F

    from handson.training import data

    optimizer, found = torch.optim.SGD(model.parameters(), rate, momentum=0.9), []

    def losses(part):
        outputs = model(data.enlarge(torch.as_tensor(part.images), size))
        return F.cross_entropy(outputs, torch.as_tensor(part.labels), reduction="sum")

    for steps in epochs:
        total = 0.0
        model.train()
        for parts in steps:
            optimizer.zero_grad()
            before, after, number = [one.clone() for one in model.buffers()], [], sum(map(len, parts))
            for part in parts:
                for buffer, value in zip(model.buffers(), before):
                    buffer.copy_(value)
                loss = losses(replace(train_set, images=train_set.images[part], labels=train_set.labels[part]))
                (loss / number).backward()
                total += loss.item()
                after.append([one.clone() for one in model.buffers()])
            for buffer, values in zip(model.buffers(), zip(*after)):
                buffer.copy_(statistics(values))
            optimizer.step()
        model.eval()
        with torch.no_grad():
            found.append(
                (total / sum(len(part) for parts in steps for part in parts), losses(test_set).item() / len(test_set))
            )
    return numpy.array(found)
