"""TensorFlow against the oracle: however many replicas there are, k steps are those of one big batch. And where Keras's
`fit` differs by definition."""

import sys

import numpy
import pytest
from oracle import by_hand, cut, images, loop, network, optimizer, weights
from waiting import run_to_end

pytestmark = pytest.mark.thorough


def by_fit(strategy, of_all, labels, batch):

    import keras
    import tensorflow as tf

    with strategy.scope():
        model = network()
        model.compile(optimizer(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(tf.data.Dataset.from_tensor_slices((of_all, labels)).batch(batch), epochs=2, verbose=0)
    return weights(model)


def test_the_network_is_that_of_the_pytorch_track(strategies):
    """With the same weights it gives the same scores, in training and in evaluation: padding, pooling and the constants
    of batch normalisation."""
    from handson.tensorflow.model import convnet

    import torch

    from handson.pytorch.model import ConvNet
    from handson.training.data import enlarge

    torch.manual_seed(0)
    for size in (256, 64):
        theirs, ours = ConvNet(), convnet((1, 28, 28), size)
        for block, number in zip(range(4), (1, 4, 7, 10)):
            convolution, normalisation = theirs[block][0], theirs[block][1]
            ours.layers[number].set_weights([convolution.weight.detach().numpy().transpose(2, 3, 1, 0)])
            ours.layers[number + 1].set_weights(
                [
                    one.detach().numpy()
                    for one in (
                        normalisation.weight,
                        normalisation.bias,
                        normalisation.running_mean,
                        normalisation.running_var,
                    )
                ]
            )
        ours.layers[-1].set_weights([theirs[-1].weight.detach().numpy().T, theirs[-1].bias.detach().numpy()])
        images = torch.rand(6, 1, 28, 28)
        for training in (True, False):
            theirs.train(training)
            expected = theirs(enlarge(images, size)).detach().numpy()
            assert numpy.abs(ours(images.numpy(), training=training).numpy() - expected).max() < 1e-3


def test_the_initial_weights_follow_from_the_seed(strategies):

    from handson.tensorflow.model import convnet

    import keras

    def first(seed):
        keras.utils.set_random_seed(seed)
        return weights(convnet((1, 28, 28), 64))

    assert (first(1) == first(1)).all() and (first(1) != first(2)).any()


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_fit_under_a_mirrored_strategy_makes_the_steps_of_one_big_batch(replicas, strategies):
    right, _ = by_hand(cut(*images(), batch=8))
    assert numpy.abs(by_fit(strategies(replicas), *images(), batch=8) - right).max() < 1e-5


def test_fit_gives_images_of_a_short_batch_unequal_weights(strategies):
    """A last batch of 3 images leaves 2 on one replica and 1 on the other: each replica counts the same. The notebook
    says so."""

    def weigh(labels):
        parts = [-(-len(labels) // 2), len(labels) // 2]
        return numpy.repeat([1 / (2 * part) for part in parts], parts)

    short = [one[:11] for one in images()]
    found = by_fit(strategies(2), *short, batch=8)
    assert numpy.abs(found - by_hand(cut(*short, batch=8), weigh)[0]).max() < 1e-5
    assert numpy.abs(found - by_hand(cut(*short, batch=8))[0]).max() > 1e-4


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_the_students_loop_makes_the_steps_of_one_big_batch_also_where_it_is_short(replicas, strategies):
    """23 images in batches of 8 leave 7, in parts of unequal length."""
    found, used = loop(strategies(replicas), images()[0][:23], 8)
    epoch = len(used) // 2
    assert sorted(numpy.concatenate(used[:epoch])) == sorted(numpy.concatenate(used[epoch:])) == list(range(23))
    right, _ = by_hand([(images()[0][numbers], numbers % 10) for numbers in used])
    assert numpy.abs(found - right).max() < 1e-5


def test_nothing_is_printed_by_the_import():
    done = run_to_end(
        [sys.executable, "-c", "import handson.tensorflow, keras, tensorflow as tf; tf.constant(1)"], timeout=500
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
