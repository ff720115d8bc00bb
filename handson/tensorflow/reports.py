"""The lecture's table, its log and the evaluation, for Keras's `fit` and for loops of one's own."""

import time

from handson.errors import TrackError
from handson.tensorflow import devices, keras, tf
from handson.training import watchdog
from handson.training.banner import COLUMNS


class Table(keras.callbacks.Callback):
    """Prints a line after each epoch, and keeps it in `log`. `fit` takes it as a callback; a loop of one's own calls `step` after its first
    step and `add` after each epoch. The first step is timed apart: in it, TensorFlow traces the step and compiles it.

    evaluate(): (loss, accuracy) on the test set; `seconds` is the time spent there so far. speaks: whether this process prints the table.
    """

    def __init__(self, evaluate, speaks=True):
        super().__init__()
        self.evaluate, self.speaks, self.log, self.seconds, self.first_step = evaluate, speaks, [], 0.0, None
        self.start = time.perf_counter()

    def on_train_begin(self, logs=None):
        used, there = self.model.distribute_strategy.num_replicas_in_sync, devices.in_use()
        if used < there:
            raise TrackError(f"fit would train on {used} of {there} GPUs, since the model is not the strategy's: make it inside `with strategy.scope():`")
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
        watchdog.progress()
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

    def say(self, line):
        """Print a line, if this process speaks."""
        if self.speaks:
            print(line, flush=True)


def evaluator(model, test_set, batchsize):
    """A function that returns (loss, accuracy) of the model on a test set, as means over its images."""
    batches = tf.data.Dataset.from_tensor_slices((test_set.images, test_set.labels)).batch(batchsize)

    @tf.function
    def sums(images, labels):
        outputs = model(images, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        return tf.reduce_sum(losses), tf.reduce_sum(tf.cast(tf.argmax(outputs, 1) == labels, "float32"))

    return means(sums, batches, len(test_set))


def means(sums, batches, number):
    """A function that returns (loss, accuracy) as means over `number` images; sums(*batch): their sums over a batch."""

    def evaluate():
        found = []
        for batch in batches:
            found.append(sums(*batch))
            watchdog.progress()
        return tuple(float(sum(of_batch)) / number for of_batch in zip(*found))

    return evaluate
