"""Extensions of pytorch-pfn-extras with what the course needs beside: exact means, and output that can be read in a
file."""

import json
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from pytorch_pfn_extras.training import extension, extensions

from handson.profiling.timeline import EVALUATION
from handson.pytorch.workers import stop_together
from handson.training import progress, step_times
from handson.training.banner import COLUMNS, TableOutput, on_terminal


def accuracy(outputs, labels):
    """The fraction of rows of `outputs` (N, classes) whose highest score is at `labels` (N)."""
    return (outputs.argmax(dim=1) == labels).float().mean()


class Evaluator(extensions.Evaluator):
    """Loss and accuracy on the test set, as means over images; pfn-extras' own gives a short last batch too much
    weight.

    `prepare(images, labels)` brings a batch to the device. With `all_ranks`, each rank brings its own part of the test
    set, and the sums are added up over the ranks: the result doesn't depend on how many there are, nor on who has how
    many images. `seconds` is the time spent here so far.
    """

    def __init__(self, loader, model, prepare, all_ranks=False):
        super().__init__(loader, model)
        self.prepare, self.all_ranks, self.seconds = prepare, all_ranks, 0.0

    @torch.profiler.record_function(EVALUATION)
    def evaluate(self):
        start = time.perf_counter()
        step_times.interrupted()
        model = self.get_target("main")
        model.eval()
        loss_sum, correct, images_seen = 0.0, 0.0, 0
        for images, labels in self.get_iterator("main"):
            images, labels = self.prepare(images, labels)
            outputs = model(images)
            loss_sum += F.cross_entropy(outputs, labels, reduction="sum").double()
            correct += (outputs.argmax(dim=1) == labels).sum()
            images_seen += len(labels)
            progress.progress()
        model.train()
        sums = torch.tensor([loss_sum, correct, images_seen], dtype=torch.float64)
        if self.all_ranks:
            dist.all_reduce(sums)
        loss_sum, correct, images_seen = sums.tolist()
        self.seconds += time.perf_counter() - start
        return {"validation/main/loss": loss_sum / images_seen, "validation/main/accuracy": correct / images_seen}


class AllreducePersistent(extension.Extension):
    """Average what the model keeps beside its parameters (batch normalisation's running statistics) over all ranks.

    Each worker normalises with the statistics of its own batches, so these differ; averaged once an epoch, before the
    evaluation and the snapshot, they are the same everywhere. ChainerMN has an extension of this name for the same
    purpose.
    """

    trigger = 1, "epoch"
    priority = extension.PRIORITY_WRITER + 1

    def __init__(self, model):
        self.model = model

    def __call__(self, manager):
        buffers = [buffer for buffer in self.model.buffers() if buffer.is_floating_point()]
        if not buffers:
            return
        flat = torch.cat([buffer.flatten() for buffer in buffers])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for buffer, mean in zip(buffers, flat.split([buffer.numel() for buffer in buffers])):
            buffer.copy_(mean.view_as(buffer))


def add_reports(manager, evaluator, model, everywhere=False):
    """Let rank 0 evaluate after each epoch (`everywhere`: every rank), keep a log, print the lecture's table, and write
    snapshots.

    A snapshot is `snapshot_epoch_<n>` in the output folder, written aside and renamed. A terminal shows the progress,
    too. With several ranks, what `model` keeps beside its parameters is averaged first (AllreducePersistent).
    """
    if dist.is_initialized():
        manager.extend(AllreducePersistent(model))
    reports = not dist.is_initialized() or dist.get_rank() == 0
    if reports or everywhere:
        manager.extend(evaluator)
    if not reports:
        return
    manager.extend(extensions.LogReport())
    manager.extend(extensions.PrintReport(COLUMNS, out=TableOutput()))
    manager.extend(extensions.snapshot(filename="snapshot_epoch_{.epoch}"))
    if on_terminal():
        manager.extend(extensions.ProgressBar(update_interval=5))


def resume(manager, path, device):
    """Continue the run of which `path` is a snapshot, and return the epoch to go on with; 0 when `path` is None.

    One sentence and status 2, on all ranks, if it cannot be continued with the present options.
    """
    if path is None:
        return 0
    problem = None
    try:
        snapshot = torch.load(path, map_location=device, weights_only=True)
        last = json.loads(snapshot["extensions"]["LogReport"]["extension"]["_log"])[-1]
        if last["iteration"] != last["epoch"] * manager._iters_per_epoch:
            problem = (
                f"--resume: {path} is of a run with another data set, batch size or number of workers; use its options"
            )
        elif last["epoch"] >= manager.max_epochs:
            problem = f"--resume: {path} is already at epoch {last['epoch']}; ask for more with -e"
        else:
            manager.load_state_dict(snapshot)
    except Exception:  # a foreign or damaged file can fail in any way
        problem = (
            f"--resume: {path} is damaged, or no snapshot of this training; give a snapshot_epoch_N of this task and"
            " track"
        )
    stop_together(problem)
    return manager.epoch
