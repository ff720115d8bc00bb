"""The extensions that the tasks' trainers have in common: the lecture's table, snapshots, progress; and how to resume a run."""
import sys
import time

import chainer
from chainer.training import extensions

from handson.banner import COLUMNS, TableOutput
from handson.chainer.errors import TrackError
from handson.chainer.evaluators import Evaluator

class TimedEvaluator(Evaluator):
    """The exact Evaluator, which also counts the seconds spent in it, in ``seconds``."""

    seconds = 0.0

    def evaluate(self):
        start = time.perf_counter()
        try:
            return super().evaluate()
        finally:
            self.seconds += time.perf_counter() - start


def reports(evaluator):
    """What the worker that reports extends its trainer with: evaluation, log, the lecture's table, snapshots (`snapshot_epoch_<n>`
    in the output folder, written aside and renamed), and on a terminal a progress bar."""
    table = extensions.PrintReport(COLUMNS, out=TableOutput())
    snapshot = extensions.snapshot(filename="snapshot_epoch_{.updater.epoch}")
    return [evaluator, extensions.LogReport(), table, snapshot] + [extensions.ProgressBar(update_interval=5)] * sys.stdout.isatty()


def resume(trainer, path):
    """Continue the run of which `path` is a snapshot, and return the epoch to go on with; 0 when `path` is None. Raises TrackError."""
    if path is None:
        return 0
    epochs, _ = trainer.stop_trigger.get_training_length()
    try:
        chainer.serializers.load_npz(path, trainer)
    except Exception:  # a foreign or damaged file can fail in any way
        hint = "give a snapshot_epoch_N of this task and track, with its options"
        raise TrackError(f"--resume: {path} is damaged, or no snapshot of this training; {hint}", on_all_ranks=True) from None
    if trainer.updater.epoch >= epochs:
        raise TrackError(f"--resume: {path} is already at epoch {trainer.updater.epoch}; ask for more with -e", on_all_ranks=True)
    return trainer.updater.epoch
