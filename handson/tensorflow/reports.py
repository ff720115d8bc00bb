"""The lecture's table, its log and the evaluation, for Keras's `fit` and for loops of one's own."""

import time

from handson.tensorflow import keras, tf
from handson.training.banner import COLUMNS


class Table(keras.callbacks.Callback):
    """Prints a line after each epoch, and keeps it in `log`. `fit` takes it as a callback; a loop of one's own calls `step` after its first
    step and `add` after each epoch. The first step is timed apart: in it, TensorFlow traces the step and compiles it.

    evaluate(): (loss, accuracy) on the test set, or None for a process that prints nothing; `seconds` is the time spent there so far.
    """

    def __init__(self, evaluate, say=print):
        super().__init__()
        self.evaluate, self.say, self.log, self.seconds, self.first_step = evaluate, say, [], 0.0, None
        self.start = time.perf_counter()

    def on_train_begin(self, logs=None):
        self.begin()

    def on_train_batch_end(self, batch, logs=None):
        self.step()

    def on_epoch_end(self, epoch, logs):
        self.add(logs["loss"], logs["accuracy"])

    def begin(self):
        """The training begins now."""
        self.start = time.perf_counter()
        self.say("  ".join(COLUMNS))

    def step(self):
        """A step has ended."""
        if self.first_step is None:
            self.first_step = time.perf_counter() - self.start

    def add(self, loss, accuracy):
        """One more epoch is over, with these means over its images."""
        begin = time.perf_counter()
        test_loss, test_accuracy = self.evaluate()
        now = time.perf_counter()
        self.seconds += now - begin
        row = dict(zip(COLUMNS, (len(self.log) + 1, float(loss), test_loss, float(accuracy), test_accuracy, now - self.start)))
        self.say("  ".join(f"{value:<{len(name)}.6g}" for name, value in row.items()))
        self.log.append(row | {"first_step": self.first_step or 0.0})


def evaluator(model, test_set, batchsize):
    """A function that returns (loss, accuracy) of the model on a test set, as means over its images."""
    batches = tf.data.Dataset.from_tensor_slices((test_set.images, test_set.labels)).batch(batchsize)

    @tf.function
    def sums(images, labels):
        outputs = model(images, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        return tf.reduce_sum(losses), tf.reduce_sum(tf.cast(tf.argmax(outputs, 1) == labels, "float32"))

    def evaluate():
        found = [sums(images, labels) for images, labels in batches]
        return tuple(float(sum(of_batch)) / len(test_set) for of_batch in zip(*found))

    return evaluate
