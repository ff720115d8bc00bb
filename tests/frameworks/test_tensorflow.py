"""TensorFlow against the oracle: however many replicas there are, k steps are those of one big batch. And where Keras's `fit` differs by definition."""

import importlib.util
import sys
from pathlib import Path

import numpy
import pytest

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions/07_frameworks/tensorflow"
SHAPE, SIZE, IMAGES = (1, 8, 8), 32, 24
pytestmark = pytest.mark.slow


def solution(name):
    spec = importlib.util.spec_from_file_location(name, SOLUTIONS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def images():
    chance = numpy.random.RandomState(0)
    return chance.rand(IMAGES, *SHAPE).astype("float32"), chance.randint(0, 10, IMAGES)


@pytest.fixture(scope="module")
def plain(strategies):
    """A function: a network without batch normalisation, whose statistics are those of one replica; the same weights each time."""
    from handson.tensorflow import keras
    from handson.tensorflow.model import convnet

    def make():
        keras.utils.set_random_seed(1)
        return convnet(SHAPE, SIZE, normalise=False)

    return make


def weights(model):
    return numpy.concatenate([numpy.ravel(one) for one in model.get_weights()])


def by_fit(make, strategy, images, labels, batch):
    from handson.tensorflow import keras, tf

    with strategy.scope():
        model = make()
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch), epochs=2, verbose=0)
    return weights(model)


def by_hand(make, batches, weigh=lambda labels: numpy.full(len(labels), 1 / len(labels))):
    """Steps of one process, in which image i of a batch has the weight weigh(labels)[i]."""
    from handson.tensorflow import keras, tf

    model, optimizer = make(), keras.optimizers.SGD(0.05, momentum=0.9)
    for images, labels in batches:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
            loss = tf.reduce_sum(losses * weigh(labels).astype("float32"))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return weights(model)


def cut(images, labels, batch, epochs=2):
    return [(images[begin : begin + batch], labels[begin : begin + batch]) for _ in range(epochs) for begin in range(0, len(images), batch)]


def test_the_network_is_that_of_the_pytorch_track(strategies):
    """With the same weights it gives the same scores, in training and in evaluation: padding, pooling and the constants of batch normalisation."""
    import torch

    from handson.pytorch.model import ConvNet
    from handson.tensorflow.model import convnet
    from handson.training.data import enlarge

    torch.manual_seed(0)
    for size in (256, 64):
        theirs, ours = ConvNet(), convnet((1, 28, 28), size)
        for block, number in zip(range(4), (1, 4, 7, 10)):
            convolution, normalisation = theirs[block][0], theirs[block][1]
            ours.layers[number].set_weights([convolution.weight.detach().numpy().transpose(2, 3, 1, 0)])
            ours.layers[number + 1].set_weights([one.detach().numpy() for one in (normalisation.weight, normalisation.bias, normalisation.running_mean, normalisation.running_var)])
        ours.layers[-1].set_weights([theirs[-1].weight.detach().numpy().T, theirs[-1].bias.detach().numpy()])
        images = torch.rand(6, 1, 28, 28)
        for training in (True, False):
            theirs.train(training)
            expected = theirs(enlarge(images, size)).detach().numpy()
            assert numpy.abs(ours(images.numpy(), training=training).numpy() - expected).max() < 1e-3


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_fit_under_a_mirrored_strategy_makes_the_steps_of_one_big_batch(replicas, strategies, plain, images):
    found = by_fit(plain, strategies(replicas), *images, batch=8)
    assert numpy.abs(found - by_hand(plain, cut(*images, batch=8))).max() < 1e-5


def test_fit_gives_images_of_a_short_batch_unequal_weights(strategies, plain, images):
    """A last batch of 3 images leaves 2 on one replica and 1 on the other: each replica counts the same. The notebook says so."""

    def weigh(labels):
        parts = [-(-len(labels) // 2), len(labels) // 2]
        return numpy.repeat([1 / (2 * part) for part in parts], parts)

    short = images[0][:11], images[1][:11]
    found = by_fit(plain, strategies(2), *short, batch=8)
    assert numpy.abs(found - by_hand(plain, cut(*short, batch=8), weigh)).max() < 1e-5
    assert numpy.abs(found - by_hand(plain, cut(*short, batch=8))).max() > 1e-4


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_the_students_loop_makes_the_steps_of_one_big_batch_also_where_it_is_short(replicas, strategies, plain, images):
    from handson.tensorflow import keras, tf

    replica, strategy = solution("replicas"), strategies(replicas)
    model, optimizer = replica.build(strategy, plain, lambda: keras.optimizers.SGD(0.05, momentum=0.9))
    dealt, labels = images[0][:23], numpy.arange(23)
    batches, used = replica.divided(strategy, dealt, labels, 8, seed=3), []

    @tf.function
    def step(images, numbers, total):
        return strategy.run(lambda images, numbers: replica.replica_step(model, optimizer, images, numbers % 10, total)[1], args=(images, numbers))

    for _ in range(2):
        for of_images, numbers in batches:
            parts = [part.numpy() for part in strategy.experimental_local_results(numbers)]
            used.append(numpy.concatenate(parts))
            step(of_images, numbers, len(used[-1]))
    assert sorted(numpy.concatenate(used[:3])) == sorted(numpy.concatenate(used[3:])) == list(range(23))
    right = by_hand(plain, [(dealt[numbers], numbers % 10) for numbers in used])
    assert numpy.abs(weights(model) - right).max() < 1e-5


def test_nothing_is_printed_by_the_import(capfd):
    import subprocess

    done = subprocess.run([sys.executable, "-c", "from handson.tensorflow import keras, tf; tf.constant(1)"], capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
