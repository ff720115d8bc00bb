"""The lecture's table and result for Lightning's Trainer."""

import os
import socket
import sys
import time

from handson.lightning import L

import torch
import torch.distributed as dist

from handson.pytorch import devices
from handson.pytorch.communicator import Communicator
from handson.training import banner, results, virtual_gpus
from handson.training.banner import COLUMNS
from handson.training.launch import loopback


def trainer(args, **given):
    """Lightning's Trainer for the GPUs args.gpu, or virtual ones, without the files and lines that it writes by itself.
    given: its other options.

    args.gpu: None becomes a GPU for each rank of a node. Where nothing else starts the ranks, the trainer starts this
    script again for each of them, two by default: these get the same folder for results.
    """
    nodes, per_node = _launched() or (1, len(args.gpu) if args.gpu else 2)
    args.gpu = args.gpu or devices.first(per_node)
    devices.check(args.gpu)
    if nodes == 1:
        loopback()
    if "-o" not in sys.argv:
        sys.argv += ["-o", str(args.out)]
    kind = "gpu" if torch.cuda.is_available() else "cpu"
    names = args.gpu[:per_node] if kind == "gpu" else per_node
    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
    }
    return L.Trainer(
        accelerator=kind,
        devices=names,
        num_nodes=nodes,
        max_epochs=args.epoch,
        num_sanity_val_steps=0,
        **quiet,
        **given,
    )


def _launched():
    """(nodes, ranks on each of them) of the launcher that has started the ranks, which Lightning does not ask; None
    where there is none."""
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
    """Chooses each rank's device before the training and prints the lecture's opening lines, takes the means of what
    training steps return, averages the statistics of batch normalisation over the ranks before each evaluation, prints
    a line of the table after each epoch, and writes the result at its end.

    train_set: of all ranks. The module's training_step returns a dict with "loss" and "accuracy"; its validation logs
    the table's other columns. (Lightning's `log` would add milliseconds to each training step, most of them to move a
    number to its device.)
    """

    def __init__(self, args, train_set):
        self.args, self.train_set, self.rows, self.evaluation, self.first_step = args, train_set, [], 0.0, None

    def setup(self, trainer, module, stage):  # Lightning calls it when the ranks have met
        gpu, library = self.args.gpu[trainer.local_rank % len(self.args.gpu)], devices.library(dist.get_backend())
        comm = Communicator(trainer.global_rank, trainer.world_size, trainer.local_rank, trainer.num_nodes, library)
        places = comm.allgather((virtual_gpus.machine(), devices.place(gpu)))
        banner.announce("Lightning", self.args, self.train_set, devices.describe(self.args.gpu, places), comm)
        devices.use(gpu)

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
        found = {
            name: float(value)
            for name, value in (trainer.callback_metrics | dict(zip(("main/loss", "main/accuracy"), means))).items()
        }
        row = (
            {"epoch": len(self.rows) + 1}
            | {name: found[name] for name in COLUMNS[1:-1]}
            | {"elapsed_time": time.perf_counter() - self.start}
        )
        self._say(trainer, "  ".join(f"{value:<{len(name)}.6g}" for name, value in row.items()))
        self.rows.append(row | {"first_step": self.first_step})

    def on_train_end(self, trainer, module):
        seconds, images = time.perf_counter() - self.start, len(self.train_set) * self.args.epoch
        if trainer.is_global_zero:
            results.report(self.args, images / seconds, images, seconds, self.rows, self.evaluation)

    def _say(self, trainer, line):
        if trainer.is_global_zero:
            print(line, flush=True)
