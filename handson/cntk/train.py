"""The trainer and the training session, which takes care of minibatches, progress, checkpoints and the test at the
end."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from handson.cntk import checkpoint_files, workers
from handson.cntk.io import MinibatchSource
from handson.errors import TrackError
from handson.pytorch.checkpoints import CheckpointError
from handson.training import progress

INPUTS = {"features", "labels"}


class Trainer:
    """The training of a network with a learner.

    model: a PyTorch module; criterion: (loss, metric), functions of (outputs, labels) that return a number for each
    sample; parameter_learners: the learner, local or distributed. Minibatches are {"features": tensor, "labels":
    tensor}.
    """

    def __init__(self, model, criterion, parameter_learners, progress_writers=()):
        self.model = model.to(workers.device())
        self.loss_function, self.evaluation_function = criterion
        [self.learner] = parameter_learners if isinstance(parameter_learners, (list, tuple)) else [parameter_learners]
        self.progress_writers = (
            list(progress_writers) if isinstance(progress_writers, (list, tuple)) else [progress_writers]
        )
        self.total_number_of_samples_seen = 0  # counts the samples of all workers
        (
            self.previous_minibatch_sample_count,
            self.previous_minibatch_loss_average,
            self.previous_minibatch_evaluation_average,
        ) = (0, 0.0, 0.0)
        self._since = [0, 0.0, 0.0]  # samples, and the sums of loss and metric, since the last summary

    def train_minibatch(self, arguments):
        """Run a step with this worker's part of a minibatch; with a distributed learner, together with all workers.

        The three attributes `previous_minibatch_...` are those of all workers. Return False if no worker had samples.
        """
        self.model.zero_grad()
        samples, loss, errors = self._evaluated(arguments)
        loss.backward()
        sums = self.learner.update([samples, loss.item(), errors.item()], self.total_number_of_samples_seen)
        samples = max(1, sums[0])
        self.previous_minibatch_sample_count = sums[0]
        self.previous_minibatch_loss_average, self.previous_minibatch_evaluation_average = (
            sums[1] / samples,
            sums[2] / samples,
        )
        self.total_number_of_samples_seen += sums[0]
        self._since = [one + other for one, other in zip(self._since, sums)]
        progress.progress()
        return sums[0] > 0

    def summarize_training_progress(self):
        """Pass the progress since the last summary to the progress writers."""
        for writer in self.progress_writers if self._since[0] else ():
            writer.write(*self._since)
        self._since = [0, 0.0, 0.0]

    @torch.no_grad()
    def test_minibatch(self, arguments):
        """Return the mean metric of this worker's part of a minibatch."""
        samples, _, errors = self._evaluated(arguments)
        progress.progress()
        return errors.item() / samples

    def _evaluated(self, arguments):
        """Return (number of samples, sum of their losses, sum of their metrics)."""
        if set(arguments) != INPUTS:
            raise TrackError(
                f"a minibatch for the trainer needs the inputs 'features' and 'labels', not {_named(arguments)}: pass"
                " an input_map to next_minibatch"
            )
        features, labels = (arguments[name].to(workers.device()) for name in ("features", "labels"))
        outputs = self.model(features)
        return len(labels), self.loss_function(outputs, labels).sum(), self.evaluation_function(outputs, labels).sum()

    def save_checkpoint(self, filename, external_state=None):
        """Write the network, the learner with each worker's own state (residuals), and `external_state`. All workers
        must call this method."""
        shared, own = self.learner.state()
        shared |= {
            "model": self.model.state_dict(),
            "samples": self.total_number_of_samples_seen,
            "external": external_state or {},
        }
        checkpoint_files.save(filename, shared, own, workers.world())

    def restore_from_checkpoint(self, filename):
        """Restore a checkpoint, and return its `external_state`. Raises CheckpointError."""
        found = checkpoint_files.load(filename, workers.world())
        if found is None:
            raise CheckpointError(f"there is no checkpoint {filename}")
        shared, own = found
        try:
            self.model.load_state_dict(shared["model"])
        except RuntimeError:
            raise CheckpointError(
                f"{filename} is a checkpoint of another network: use a different filename for each training"
            ) from None
        self.learner.restore(shared, own)
        self.total_number_of_samples_seen = shared["samples"]
        return shared["external"]


class ProgressPrinter:
    """A progress writer that prints a line on worker 0 whenever a session summarises its progress. `log` holds the
    numbers of the lines, and `samples` counts samples."""

    def __init__(self, tag="Training", num_epochs=None):
        self.tag, self.num_epochs, self.log, self.samples, self.begin = tag, num_epochs, [], 0, time.perf_counter()

    def write(self, samples, loss, metric):
        """Write a line. loss, metric: their sums over `samples`."""
        seconds = time.perf_counter() - self.begin
        self.samples += samples
        self.log.append(
            {
                "epoch": len(self.log) + 1,
                "main/loss": loss / samples,
                "main/accuracy": 1 - metric / samples,
                "elapsed_time": seconds,
            }
        )
        if workers.world().rank == 0:
            of = f" of {self.num_epochs}" if self.num_epochs else ""
            means = f"loss = {loss / samples:.6f} * {samples}, metric = {100 * metric / samples:.2f}% * {samples}"
            print(f"Finished Epoch[{len(self.log)}{of}]: [{self.tag}] {means} {seconds:.3f}s", flush=True)


@dataclass
class CheckpointConfig:
    """The file of the checkpoints, and the number of samples of all workers between two checkpoints. frequency: None
    for a single checkpoint at the end; restore: whether to resume from an existing checkpoint."""

    filename: str | Path
    frequency: int | None = None
    restore: bool = True


@dataclass
class TestConfig:
    """The test after training. The source must end: set its max_samples or max_sweeps."""

    minibatch_source: MinibatchSource
    minibatch_size: int = 32

    __test__ = False  # pytest must not collect this class


@dataclass
class TrainingSession:
    """A whole training run; see `training_session`."""

    trainer: Trainer
    mb_source: MinibatchSource
    mb_size: int
    model_inputs_to_streams: dict
    max_samples: int
    progress_frequency: int
    checkpoint_config: CheckpointConfig | None
    test_config: TestConfig | None
    test_error: float | None = None

    def train(self):
        """Train until the source is exhausted, or until max_samples. All workers must call this method. `test_error` is
        then the mean metric of the test."""
        trainer, config = self.trainer, self.checkpoint_config
        if config and config.restore and checkpoint_files.exists(config.filename):
            self.mb_source.restore_from_checkpoint(trainer.restore_from_checkpoint(config.filename))
        while trainer.total_number_of_samples_seen < self.max_samples:
            before = trainer.total_number_of_samples_seen
            partitions, partition = trainer.learner.partitions(before)
            size = min(self.mb_size, self.max_samples - before)
            minibatch = self.mb_source.next_minibatch(
                size, self.model_inputs_to_streams, num_data_partitions=partitions, partition_index=partition
            )
            if not minibatch:
                break
            trainer.train_minibatch(minibatch)
            count = trainer.previous_minibatch_sample_count
            if _passed(before, count, self.progress_frequency):
                trainer.summarize_training_progress()
            if config and config.frequency and _passed(before, count, config.frequency):
                self._save()
        trainer.learner.finish()
        trainer.summarize_training_progress()
        if config:
            self._save()
        if self.test_config:
            self._test(self.test_config)

    def _save(self):
        self.trainer.save_checkpoint(self.checkpoint_config.filename, self.mb_source.get_checkpoint_state())

    def _test(self, config):
        """Test this worker's partition, and sum the metrics of all workers."""
        comm, tested, errors = workers.world(), 0, 0.0
        options = {"num_data_partitions": comm.size, "partition_index": comm.rank}
        while minibatch := config.minibatch_source.next_minibatch(
            config.minibatch_size, self.model_inputs_to_streams, **options
        ):
            samples = len(minibatch["labels"])
            tested += samples
            errors += samples * self.trainer.test_minibatch(minibatch) if samples else 0.0
        tested, errors = comm.allreduce(tested), comm.allreduce(errors)
        if not tested:
            raise TrackError(
                "the test source has no samples left: pass TestConfig a source that is not used for training"
            )
        self.test_error = errors / tested
        if comm.rank == 0:
            print(
                f"Finished Evaluation [1]: Minibatch[1-{-(-tested // config.minibatch_size)}]: metric ="
                f" {100 * self.test_error:.2f}% * {tested};",
                flush=True,
            )


def training_session(
    trainer,
    mb_source,
    mb_size,
    model_inputs_to_streams,
    max_samples=None,
    progress_frequency=None,
    checkpoint_config=None,
    cv_config=None,
    test_config=None,
):
    """Return a session, whose `train()` trains.

    mb_size: number of samples per minibatch, of all workers together; model_inputs_to_streams: {"features": a stream of
    the source, "labels": ...}; max_samples: number of samples after which to stop, needed if the source is endless;
    progress_frequency: number of samples between two lines of progress. Raises TrackError.
    """
    if set(model_inputs_to_streams) != INPUTS:
        raise TrackError(
            f"model_inputs_to_streams needs the inputs 'features' and 'labels', not {_named(model_inputs_to_streams)}"
        )
    if cv_config is not None:
        raise TrackError("handson.cntk has no cross validation (cv_config): use test_config")
    if not isinstance(mb_size, int) or mb_size < 1:
        raise TrackError(
            f"mb_size must be a whole number of samples above 0, not {mb_size!r:.60} (handson.cntk does not support"
            " schedules)"
        )
    if mb_source.is_infinite and max_samples is None:
        raise TrackError("training would never end: set max_samples in the MinibatchSource or in the training_session")
    if test_config and test_config.minibatch_source.is_infinite:
        raise TrackError("the test would never end: set max_samples or max_sweeps in its MinibatchSource")
    trainer.model.train()
    return TrainingSession(
        trainer,
        mb_source,
        mb_size,
        model_inputs_to_streams,
        max_samples or sys.maxsize,
        progress_frequency or sys.maxsize,
        checkpoint_config,
        test_config,
    )


def _passed(before, count, frequency):
    """Return whether a multiple of `frequency` lies within the last `count` samples."""
    return (before + count) // frequency > before // frequency


def _named(inputs):
    return ", ".join(repr(name) if isinstance(name, str) else f"the stream {name.name!r}" for name in inputs) or "none"
