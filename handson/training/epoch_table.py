"""The progress table of the lecture and its log, for training loops that write none, as in PyTorch, TensorFlow and
JAX."""

import time

from handson.profiling import recording
from handson.profiling.timeline import EVALUATION
from handson.training import progress, step_times
from handson.training.banner import COLUMNS


class EpochTable:
    """Print a line after each epoch, and keep it in `log`.

    A loop calls `begin`, then `step` after each step and `add` after each epoch. The first step is timed separately,
    because these systems trace and compile it; the training time does not include evaluation. evaluate() returns (loss,
    accuracy) on the test set; `seconds` is its total time so far. speaks: whether this process prints the table.
    """

    def __init__(self, evaluate, speaks=True):
        super().__init__()
        self.evaluate, self.speaks, self.log, self.seconds, self.first_step = evaluate, speaks, [], 0.0, None
        self.start = time.perf_counter()

    def begin(self):
        """Start the clock at the start of training."""
        self.start = time.perf_counter()
        self.say("  ".join(COLUMNS))

    def step(self):
        """Record the end of a step."""
        progress.progress()
        if self.first_step is None:
            self.first_step = time.perf_counter() - self.start

    def add(self, loss, accuracy):
        """Record the end of an epoch, with its mean loss and accuracy."""
        loss, accuracy = float(loss), float(accuracy)  # waits for a GPU that is still computing them
        begin = time.perf_counter()
        step_times.interrupted()
        with recording.span("user_annotation", EVALUATION):
            test_loss, test_accuracy = self.evaluate()
        now = time.perf_counter()
        self.seconds += now - begin
        row = dict(zip(COLUMNS, (len(self.log) + 1, loss, test_loss, accuracy, test_accuracy, now - self.start)))
        self.say("  ".join(f"{value:<{len(name)}.6g}" for name, value in row.items()))
        self.log.append(row | {"first_step": self.first_step or 0.0, "training_time": now - self.start - self.seconds})

    def say(self, line):
        """Print a line, if this process prints the table."""
        if self.speaks:
            print(line, flush=True)
