"""The lecture's table and result for Lightning's Trainer."""

import os
import socket
import sys
import time

import torch

from handson.lightning import L
from handson.pytorch import devices
from handson.pytorch.workers import Communicator, loopback
from handson.training import banner, results
from handson.training.banner import COLUMNS


def trainer(args, **given):
    """Lightning's Trainer for the GPUs args.gpu, or virtual ones, without the files and lines that it writes by itself. given: its other options.

    Where nothing else starts the ranks, it starts this script again for each of them: these get the same folder for results.
    """
    devices.check(args.gpu)
    nodes, per_node = _ranks(args.gpu)
    if nodes == 1:
        loopback()
    if "-o" not in sys.argv:
        sys.argv += ["-o", str(args.out)]
    kind = "gpu" if torch.cuda.is_available() else "cpu"
    names = args.gpu[:per_node] if kind == "gpu" else per_node
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
    return L.Trainer(accelerator=kind, devices=names, num_nodes=nodes, max_epochs=args.epoch, num_sanity_val_steps=0, **quiet, **given)


def _ranks(gpus):
    """(nodes, ranks on each of them) of the launcher that has started the ranks; Lightning asks none. Where it starts them itself, one for each GPU."""
    environments = L.fabric.plugins.environments
    if environments.TorchElasticEnvironment.detect():
        per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        return int(os.environ["WORLD_SIZE"]) // per_node, per_node
    if environments.MPIEnvironment.detect():
        from mpi4py import MPI

        hosts = MPI.COMM_WORLD.allgather(socket.gethostname())
        return len(set(hosts)), hosts.count(hosts[0])
    return 1, len(gpus)


def announce(trainer, args, train_set):
    """Print the lecture's opening lines, on rank 0."""
    size, nodes = trainer.world_size, trainer.num_nodes
    comm = Communicator(trainer.global_rank, size, trainer.local_rank, nodes, "gloo" if trainer.accelerator.name() == "cpu" else "nccl")
    args.gpu = (args.gpu * size)[: max(len(args.gpu), size // nodes)]
    banner.announce("Lightning", args, train_set, devices.describe(args.gpu[:size]), comm)


class Report(L.Callback):
    """Chooses each rank's device before the training, takes the means of what training steps return, averages the statistics of batch normalisation
    over the ranks before each evaluation, prints a line of the table after each epoch, and writes the result at its end.

    images: trained on in all epochs, by all ranks. The module's training_step returns a dict with "loss" and "accuracy"; its validation logs the
    table's other columns. (Lightning's `log` would add milliseconds to each training step, most of them to move a number to its device.)
    """

    def __init__(self, args, images):
        self.args, self.images, self.rows, self.evaluation, self.first_step = args, images, [], 0.0, None

    def setup(self, trainer, module, stage):
        devices.use(self.args.gpu[trainer.local_rank % len(self.args.gpu)])

    def on_train_start(self, trainer, module):
        self.start = time.perf_counter()
        self._say(trainer, "  ".join(COLUMNS))

    def on_train_epoch_start(self, trainer, module):
        self.of_steps = []

    def on_train_batch_end(self, trainer, module, outputs, *_):
        self.of_steps.append(torch.stack([outputs["loss"], outputs["accuracy"]]).detach())
        if self.first_step is None:
            self.first_step = time.perf_counter() - self.start

    def on_validation_start(self, trainer, module):
        self.evaluating = time.perf_counter()
        if trainer.world_size > 1:
            for statistic in filter(torch.is_floating_point, module.buffers()):
                statistic.copy_(trainer.strategy.reduce(statistic, reduce_op="mean"))

    def on_validation_end(self, *_):
        self.evaluation += time.perf_counter() - self.evaluating

    def on_train_epoch_end(self, trainer, module):  # Lightning calls it after the epoch's validation
        means = trainer.strategy.reduce(torch.stack(self.of_steps).mean(dim=0), reduce_op="mean")
        found = {name: float(value) for name, value in (trainer.callback_metrics | dict(zip(("main/loss", "main/accuracy"), means))).items()}
        row = {"epoch": len(self.rows) + 1} | {name: found[name] for name in COLUMNS[1:-1]} | {"elapsed_time": time.perf_counter() - self.start}
        self._say(trainer, "  ".join(f"{value:<{len(name)}.6g}" for name, value in row.items()))
        self.rows.append(row | {"first_step": self.first_step})

    def on_train_end(self, trainer, module):
        seconds = time.perf_counter() - self.start
        if trainer.is_global_zero:
            results.report(self.args, self.images / seconds, self.images, seconds, self.rows, self.evaluation)

    def _say(self, trainer, line):
        if trainer.is_global_zero:
            print(line, flush=True)
