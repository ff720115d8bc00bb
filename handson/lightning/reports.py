"""The lecture's table and result for Lightning's Trainer, and its settings for the ranks."""

import os
import socket
import sys
import time

import lightning as L
import torch

from handson.pytorch import devices
from handson.pytorch.communicator import announce
from handson.training import results
from handson.training.epoch_table import EpochTable
from handson.training.launch import loopback

QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}


def ranks(args):
    """Return options of Lightning's Trainer: its ranks train on the GPUs args.gpu, or virtual ones, and it writes no
    files and lines by itself.

    If args.gpu is None, it becomes a GPU for each rank of a node. If no launcher starts the ranks, the trainer starts
    this script again for each of them, two by default, with the same folder for results.
    """
    nodes, per_node = _launched() or (1, len(args.gpu) if args.gpu else min(2, devices.count()))
    args.gpu = args.gpu or devices.first(per_node)
    devices.check(args.gpu)
    devices.needs_nccl("Lightning", devices.backend(args.gpu))
    if nodes == 1:
        loopback()
    if "-o" not in sys.argv:
        sys.argv += ["-o", str(args.out)]
    kind = "gpu" if torch.cuda.is_available() else "cpu"
    names = args.gpu[:per_node] if kind == "gpu" else per_node
    return {"accelerator": kind, "devices": names, "num_nodes": nodes, "num_sanity_val_steps": 0, **QUIET}


def _launched():
    """Return (nodes, ranks per node) of the launcher that has started the ranks, which Lightning does not detect.
    Return None without a launcher."""
    environments = L.fabric.plugins.environments
    if environments.TorchElasticEnvironment.detect():
        per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        return int(os.environ["WORLD_SIZE"]) // per_node, per_node
    if environments.MPIEnvironment.detect():
        from mpi4py import MPI

        hosts = MPI.COMM_WORLD.allgather(socket.gethostname())
        return len(set(hosts)), hosts.count(hosts[0])
    return None


class Report(L.Callback):
    """Choose each rank's device before training, and print the lecture's first lines, a line of the table after each
    epoch, and the result at the end.

    train_set: the whole training set, for all ranks. The module's training_step returns a dict with "loss" and
    "outputs"; its validation logs the table's other columns. (Lightning's `log` would add milliseconds to each training
    step, mostly to move a number to its device.)
    """

    def __init__(self, args, train_set):
        self.args, self.train_set = args, train_set

    def setup(self, trainer, module, stage):  # called once the ranks are connected
        os.environ["LOCAL_RANK"] = str(trainer.local_rank)
        announce("Lightning", self.args, self.train_set)
        devices.use(self.args.gpu[trainer.local_rank % len(self.args.gpu)])

    def on_train_start(self, trainer, module):
        def evaluated():
            return [float(trainer.callback_metrics[f"validation/main/{name}"]) for name in ("loss", "accuracy")]

        self.table = EpochTable(evaluated, speaks=trainer.is_global_zero)
        self.table.begin()

    def on_train_epoch_start(self, trainer, module):
        self.sums = torch.zeros(3, device=module.device)  # losses, correct images, all images

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        labels = batch[1]
        correct = (outputs["outputs"].argmax(dim=1) == labels).sum()
        self.sums += torch.stack([outputs["loss"] * len(labels), correct, torch.ones_like(correct) * len(labels)])
        self.table.step()

    def on_validation_start(self, trainer, module):
        self.evaluating = time.perf_counter()

    def on_validation_end(self, trainer, module):
        self.table.seconds += time.perf_counter() - self.evaluating

    def on_train_epoch_end(self, trainer, module):  # called after the epoch's validation
        loss, correct, images = trainer.strategy.reduce(self.sums, reduce_op="sum").tolist()
        self.table.add(loss / images, correct / images)

    def on_train_end(self, trainer, module):
        seconds, images = time.perf_counter() - self.table.start, len(self.train_set) * self.args.epoch
        if trainer.is_global_zero:
            results.report(self.args, images / seconds, images, seconds, self.table.log, self.table.seconds)
