"""The lecture's table and its log, for training loops that have none of their own: those of PyTorch, TensorFlow and
JAX."""

import time

from handson.profiling import recording
from handson.profiling.timeline import EVALUATION
from handson.training import progress, step_times
from handson.training.banner import COLUMNS


class EpochTable:
    """Prints a line after each epoch, and keeps it in `log`. A loop calls `begin`, then `step` after each step and
    `add` after each epoch. The first step is timed apart, in which these systems trace the step and compile it; and the
    training since its begin, without the evaluation.

    evaluate(): (loss, accuracy) on the test set; `seconds` is the time spent there so far. speaks: whether this process
    prints the table.
    """

    def __init__(self, evaluate, speaks=True):
        super().__init__()
        self.evaluate, self.speaks, self.log, self.seconds, self.first_step = evaluate, speaks, [], 0.0, None
        self.start = time.perf_counter()

    def begin(self):
        """The training begins now."""
        self.start = time.perf_counter()
        self.say("  ".join(COLUMNS))

    def step(self):
        """A step has ended."""
        progress.progress()
        if self.first_step is None:
            self.first_step = time.perf_counter() - self.start

    def add(self, loss, accuracy):
        """One more epoch is over, with these means over its images."""
        loss, accuracy = float(loss), float(accuracy)  # a GPU may still compute them
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
        """Print a line, if this process speaks."""
        if self.speaks:
            print(line, flush=True)
