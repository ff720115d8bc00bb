"""The extensions that all trainers share: the lecture's table, snapshots, progress; and how to resume a run."""

import time

from handson.chainer import devices
from handson.chainer.evaluators import Evaluator

import chainer
import numpy
from chainer.training import extensions
from chainermn.optimizers import _DoubleBufferingOptimizer

from handson.errors import TrackError
from handson.training import equal_ranks, progress, step_times
from handson.training.banner import COLUMNS, TableOutput, on_terminal


class TimedEvaluator(Evaluator):
    """The exact Evaluator, which also counts the seconds spent in it, in ``seconds``."""

    seconds = 0.0

    def evaluate(self):
        devices.finish()  # the last training step
        start = time.perf_counter()
        step_times.interrupted()
        try:
            return super().evaluate()
        finally:
            self.seconds += time.perf_counter() - start


def add_reports(trainer, evaluator, comm=None):
    """Make a trainer evaluate after each epoch; rank 0 keeps a log, prints the lecture's table, and writes snapshots.

    comm: the communicator of a multi-node run, in which all ranks evaluate. A snapshot is `snapshot_epoch_<n>` in the
    output folder, written under another name and renamed. A terminal also shows the progress. Raises TrackError on all
    ranks if the option --double-buffering would have no effect.
    """
    _note_progress(trainer.updater, comm)
    if comm is not None:
        _check_double_buffering(trainer.updater, comm)
    trainer.extend(evaluator)
    if comm is not None and comm.rank != 0:
        return
    trainer.extend(extensions.LogReport())
    trainer.extend(extensions.PrintReport(COLUMNS, out=TableOutput()))
    trainer.extend(extensions.snapshot(filename="snapshot_epoch_{.updater.epoch}"))
    if on_terminal():
        trainer.extend(extensions.ProgressBar(update_interval=5))


def _note_progress(updater, comm):
    """Make each update record the run's progress, and compare the ranks of `comm`, if there is one."""
    update, optimizer = updater.update, updater.get_optimizer("main")
    # with double buffering, a second thread uses the communicator
    comparable = comm is not None and not isinstance(optimizer, _DoubleBufferingOptimizer)

    def noted():
        update()
        progress.progress()
        step_times.ended(optimizer.target.count_params)
        if comparable and equal_ranks.due(updater.iteration):
            equal_ranks.compare(comm.mpi_comm.allgather(_checksum(optimizer.target)), updater.iteration)

    updater.update = noted


def _checksum(model):
    """Return two numbers that are equal for equal parameters."""
    arrays = [parameter.array.astype("float64") for parameter in model.params()]
    return [float(sum((array**power).sum() for array in arrays)) for power in (1, 2)]


def _check_double_buffering(updater, comm):
    """Raise TrackError on all ranks if the optimizer has double buffering and the run does not request it, or the
    reverse."""
    has, asked = (
        isinstance(updater.get_optimizer("main"), _DoubleBufferingOptimizer),
        getattr(comm, "double_buffering", None),
    )
    if asked is not None and has != asked:
        what = (
            "--double-buffering would have no effect"
            if asked
            else "the optimizer has double buffering, but --double-buffering was not given"
        )
        raise TrackError(
            f"{what}: write create_multi_node_optimizer(optimizer, comm, double_buffering=args.double_buffering)",
            on_all_ranks=True,
        )


def resume(trainer, path):
    """Continue the run from the snapshot `path`, and return the next epoch; 0 if `path` is None.

    All ranks of a multi-node run must call it. Raises TrackError on all of them if one cannot continue with the present
    options.
    """
    if path is None:
        return 0
    problem = _load(trainer, path)
    communicator = getattr(trainer.updater.get_optimizer("main"), "communicator", None)
    problems = communicator.mpi_comm.allgather(problem) if communicator else [problem]
    if any(problems):
        raise TrackError(next(filter(None, problems)), on_all_ranks=True)
    return trainer.updater.epoch


def _load(trainer, path):
    """Load a snapshot. Return what is wrong with it, as a sentence, or None."""
    epochs, _ = trainer.stop_trigger.get_training_length()
    try:
        # load_npz would execute pickled content of the file
        with open(path, "rb") as file, numpy.load(file, allow_pickle=False) as arrays:
            chainer.serializers.NpzDeserializer(arrays).load(trainer)
    except TrackError as error:
        return f"--resume: {error}"
    except Exception:  # a file of another kind, or a damaged one, can fail in any way
        hint = "give a snapshot_epoch_N of this task and track, with its options"
        return f"--resume: {path} is damaged or not a snapshot of this training: {hint}"
    if trainer.updater.epoch >= epochs:
        return f"--resume: {path} is already at epoch {trainer.updater.epoch}: train for more epochs with -e"
    return None
