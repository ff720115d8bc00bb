"""The lecture's table, its log and the evaluation, for Keras's `fit` and for custom loops."""

from handson.tensorflow import UNTUNED, devices

import keras
import tensorflow as tf

from handson.errors import TrackError
from handson.training import progress
from handson.training.epoch_table import EpochTable


class Table(EpochTable, keras.callbacks.Callback):
    """The table as a callback of `fit`. A custom loop calls the methods of EpochTable itself."""

    def on_train_begin(self, logs=None):
        used, there = self.model.distribute_strategy.num_replicas_in_sync, devices.in_use()
        if used < there:
            raise TrackError(
                f"fit would train on {used} of {there} GPUs, since the model was not created by the strategy: create"
                " it inside `with strategy.scope():`"
            )
        self.begin()

    def on_train_batch_end(self, batch, logs=None):
        self.step()

    def on_epoch_end(self, epoch, logs):
        self.add(logs["loss"], logs["accuracy"])


def evaluator(model, test_set, batchsize):
    """Return a function that returns (loss, accuracy) of the model on a test set, as means over its images."""
    batches = (
        tf.data.Dataset.from_tensor_slices((test_set.images, test_set.labels)).batch(batchsize).with_options(UNTUNED)
    )

    @tf.function
    def sums(images, labels):
        outputs = model(images, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        return tf.reduce_sum(losses), tf.reduce_sum(tf.cast(tf.argmax(outputs, 1) == labels, "float32"))

    return means(sums, batches, len(test_set))


def means(sums, batches, number):
    """Return a function that returns (loss, accuracy) as means over `number` images; sums(*batch) returns the sums over
    a batch."""

    def evaluate():
        found = []
        for batch in batches:
            found.append(sums(*batch))
            progress.progress()
        return tuple(float(sum(of_batch)) / number for of_batch in zip(*found))

    return evaluate
